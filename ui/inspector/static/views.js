// The panel follows the token under the pointer or focus; without script a click does the same.
const panel = document.querySelector("[data-panel]");
let wait = 0, wanted = "";
const look = (event) => {
  const token = event.target.closest?.(".tokens a");
  if (!token || token.href === wanted) return;
  wanted = token.href;
  clearTimeout(wait);
  wait = setTimeout(async () => {
    const answer = await fetch(token.href).catch(() => null);
    if (wanted !== token.href) return;
    if (!answer?.ok) { wanted = ""; return; }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    panel.replaceChildren(...fresh.querySelector("[data-panel]").childNodes);
    const links = [...fresh.querySelectorAll(".controls a")];
    document.querySelectorAll(".controls a").forEach((one, i) => { if (links[i]) one.href = links[i].href; });
    const marks = [...fresh.querySelectorAll(".tokens a")];
    document.querySelectorAll(".tokens a").forEach((one, i) => {
      for (const name of ["from", "sel"]) one.classList.toggle(name, marks[i]?.classList.contains(name) ?? false);
    });
  }, 90);
};
if (panel) for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, look);
