// What a reader or a screen reader would stumble over on this page.
() => {
  const parse = (text) => {
    const found = text.match(/[\d.]+/g).map(Number);
    return { rgb: found.slice(0, 3), alpha: found[3] ?? 1 };
  };
  const light = ([r, g, b]) => {
    const part = (c) => ((c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const { rgb, alpha } = parse(getComputedStyle(at).backgroundColor);
      if (alpha > 0.99) return rgb;
    }
    return parse(getComputedStyle(document.body).backgroundColor).rgb;
  };
  const contrast = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const said = walker.currentNode.textContent.trim();
    if (!said || !node.getClientRects().length || node.closest("dialog, .sr, .skip, option, :disabled")) continue;
    const style = getComputedStyle(node);
    const ink = parse(node.closest("svg") ? style.fill : style.color).rgb;
    const [low, high] = [light(ink), light(ground(node))].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) contrast.push(`${said.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  const name = (one) =>
    one.getAttribute("aria-label") || one.labels?.[0]?.textContent || one.textContent || one.getAttribute("title") || "";
  const controls = [...document.querySelectorAll("a, button, input:not([type=hidden]), select, progress, [role=img], [role=region], [tabindex='0']")];
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  return {
    contrast,
    unnamed: controls.filter((one) => !name(one).trim()).map((one) => one.outerHTML.slice(0, 80)),
    doubled: ids.filter((id, i) => ids.indexOf(id) !== i),
    headings: document.querySelectorAll("h1").length,
  };
}
