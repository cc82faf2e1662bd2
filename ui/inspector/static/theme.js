// Before the first paint, so that a page never flashes in the other theme.
const asked = new URLSearchParams(location.search).get("theme");
let kept = null;
try { kept = localStorage.getItem("theme"); } catch { /* storage may be refused */ }
if (asked === "dark" || asked === "light") kept = asked;
if (kept) document.documentElement.dataset.theme = kept;
