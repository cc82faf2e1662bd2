// All the script there is. Every page works without it: filters and sliders are GET forms, rows are links.
const root = document.documentElement;
const all = (list) => [...document.querySelectorAll(list)];

const turn = () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* storage may be refused */ }
};
const copy = (button) => {
  const text = document.getElementById(button.dataset.copy).textContent;
  const said = (word) => { button.textContent = word; };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => said("Copied"), () => said("Select it"));
  else said("Select it");
};
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.copy) copy(button);
  else if (button?.id === "theme") turn();
  else if (button && "keys" in button.dataset) document.getElementById("keys").showModal();
});

const step = (list, by) => {
  const items = all(list).filter((item) => item.checkVisibility());
  const at = items.indexOf(document.activeElement);
  const from = at >= 0 ? at + by : Math.max(0, items.findIndex((item) => item.matches("[aria-current]")));
  items[Math.max(0, Math.min(items.length - 1, from))]?.focus();
};
const follow = (mark) => document.querySelector(`[data-key="${CSS.escape(mark)}"]`);
const keys = {
  j: () => step("[data-row]", 1),
  k: () => step("[data-row]", -1),
  "/": () => document.querySelector("[data-search]")?.focus(),
  "?": () => document.getElementById("keys").showModal(),
  t: turn,
  x: () => document.activeElement.closest("tr")?.querySelector("[name=pick]")?.click(),
  c: () => document.querySelector("[data-compare]")?.click(),
};
document.addEventListener("keydown", (event) => {
  const inText = event.target.matches("input:not([type=checkbox]):not([type=range]), select, textarea");
  if (inText || event.metaKey || event.ctrlKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input[type=range]") && event.key.startsWith("Arrow")) return;
  const go = { ...keys };
  if (document.querySelector(".tokens")) {
    go.ArrowRight = () => step(".tokens a", 1);
    go.ArrowLeft = () => step(".tokens a", -1);
  }
  const act = go[event.key] ?? (follow(event.key) && (() => follow(event.key).click()));
  if (act) { event.preventDefault(); act(); }
});

// Two heals at most can stand beside each other; the button says how many are picked.
const picks = () => {
  const chosen = all("[name=pick]:checked").length;
  for (const box of all("[name=pick]:not(:checked)")) box.disabled = chosen >= 2;
  for (const button of all("[data-compare]")) button.disabled = chosen !== 2;
};
document.addEventListener("change", (event) => {
  if (event.target.name === "pick") picks();
  else if (event.target.matches("select[data-go]")) event.target.form.requestSubmit();
});
picks();

// A run under way: its live part is fetched again, scroll and focus stay.
const live = document.querySelector("[data-live]");
if (live) {
  const again = async () => {
    const answer = document.hidden ? null : await fetch(location.href).catch(() => null);
    if (answer?.ok) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-live]");
      if (!fresh) { location.reload(); return; }
      if (!live.contains(document.activeElement)) live.replaceChildren(...fresh.childNodes);
    }
    setTimeout(again, 2000);
  };
  setTimeout(again, 2000);
}

// Expected speed by depth: (1 + held) / (verify + depth · draft), line and band alike.
const speed = document.getElementById("speed");
if (speed) {
  const height = 220;
  const [verify, draft] = ["verify", "draft"].map((id) => document.getElementById(id));
  const data = JSON.parse(speed.dataset.curves);
  const redraw = () => {
    const v = +verify.value, c = +draft.value;
    const fast = (held) => held.map((kept, d) => (d ? (1 + kept) / (v + d * c) : 1));
    const drawn = data.map((one) => ({ who: one.who, mid: fast(one.held), low: fast(one.low), high: fast(one.high) }));
    const most = Math.max(...drawn.flatMap((one) => one.high));
    const least = Math.min(...drawn.flatMap((one) => one.low));
    const by = most - least > 2.5 ? 1 : 0.5;
    const foot = Math.floor(Math.min(0.5, least) / by) * by;
    const top = Math.ceil((most + 0.1) / by) * by;
    const y = (value) => (height * (1 - (value - foot) / (top - foot))).toFixed(1);
    const at = (values) => values.map((s, d) => `${((d * 100) / (values.length - 1)).toFixed(2)},${y(s)}`);
    const ticks = [];
    for (let t = Math.ceil(foot / by) * by; t <= top + 1e-9; t += by) {
      ticks.push(`<line class="${t - foot < by / 2 ? "ax" : "g"}" x1="0" x2="100%" y1="${y(t)}" y2="${y(t)}"/><text x="-8" y="${+y(t) + 4}" text-anchor="end">${t.toFixed(1)}</text>`);
    }
    speed.querySelector("[data-ticks]").innerHTML = ticks.join("");
    speed.querySelector("[data-one]").setAttribute("transform", `translate(0 ${y(1)})`);
    for (const { who, mid, low, high } of drawn) {
      const mine = (tag) => speed.querySelector(`${tag}[data-who=${who}]`);
      mine("polyline").setAttribute("points", at(mid).join(" "));
      mine("polygon").setAttribute("points", [...at(high), ...at(low).reverse()].join(" "));
      speed.querySelectorAll(`svg[data-who=${who}]`).forEach((dot, d) => dot.setAttribute("y", y(mid[d])));
      const best = mid.indexOf(Math.max(...mid));
      mine("text").textContent = `${mid[best].toFixed(2)}× at ${best}`;
      mine("text").setAttribute("x", `${(best * 100) / (mid.length - 1)}%`);
      mine("text").setAttribute("y", y(mid[best]) - 14);
      const said = document.querySelector(`[data-best=${who}]`);
      if (said) said.textContent = `${mid[best].toFixed(2)}× at ${best}`;
    }
    verify.nextElementSibling.value = v.toFixed(2);
    draft.nextElementSibling.value = c.toFixed(2);
  };
  for (const slider of [verify, draft]) slider.addEventListener("input", redraw);
}
