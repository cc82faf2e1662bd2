"""The pictures in docs/img, all taken of one store in one go.

    python -m tests.test_browser.pictures STORE [FOLDER]

STORE holds two finished heals of one model, such as these make:

    heal demo --store STORE
    heal demo --store STORE --set train.lr=2.5e-4

What names the store's folder is left out: the footer, and a row of a stage's page.
"""

import json
import shutil
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.test_browser.conftest import serving

WIDE = 1280  # pixels
ENDINGS = {"light": "", "dark": "-dark"}

LEFT_OUT = """for (const name of document.querySelectorAll("dt"))
  if (name.textContent === "folder") name.parentElement.remove()"""


@dataclass(frozen=True)
class Picture:
    """A page, or the part of it from the top of one element to the end of another."""

    path: str
    start: str = ""  # a selector; the page's top if empty
    end: str = "footer"  # a selector; a footer itself is left out
    is_dark_too: bool = False


def main() -> None:
    """Takes every picture of the store into the folder. SystemExit without two heals."""
    root = Path(sys.argv[1])
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else "docs/img")
    with serving(root) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name, picture in _pictures(root, address).items():
            for theme in ENDINGS if picture.is_dark_too else ("light",):
                taken = folder / f"{name}{ENDINGS[theme]}.png"
                _take(browser, address, picture, theme, taken)
        browser.close()


def _pictures(root: Path, address: str) -> dict[str, Picture]:
    with urllib.request.urlopen(f"{address}/api/heals.json?sort=held") as answer:
        heals = json.load(answer)["rows"]
    done = [one["id"] for one in heals if one["state"] == "done"]
    if len(done) < 2:
        raise SystemExit(f"{root} holds {len(done)} finished heals; two are compared.")
    best, other = done[0], done[1]
    events: list[dict[str, Any]] = json.loads(
        (root / "runs" / best / "run.json").read_text()
    )["events"]

    def key(stage: str, label: str = "") -> str:
        found = [e["key"] for e in events if e["name"] == stage and e["label"] == label]
        return f"{stage}/{found[-1]}"

    measure, training = key("measure_draft", "healed keep"), key("train_draft", "heal")
    return {
        "heals": Picture("/", is_dark_too=True),
        "heal": Picture(f"/heal/{best}", end="#drafts", is_dark_too=True),
        "heal-codecs": Picture(f"/heal/{best}", start="#rounds", end="#codecs"),
        "compare": Picture(f"/compare?a={other}&b={best}", end="#drafts", is_dark_too=True),
        "windows": Picture(f"/windows/{measure}?draft=difference&c=kept", is_dark_too=True),
        "training": Picture(f"/training/{training}"),
        "stage": Picture(f"/stage/{training}"),
        "arrays": Picture(f"/arrays/{key('trunk_pass', 'folded')}?name=hidden"),
        "store": Picture("/store"),
    }


def _take(browser: Browser, address: str, picture: Picture, theme: str, to: Path) -> None:
    context = browser.new_context(viewport={"width": WIDE, "height": 800})
    page = context.new_page()
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]  # two of its literals
    page.goto(address + picture.path, timeout=120_000)
    page.evaluate(LEFT_OUT)
    top = _edge(page, picture.start, "top") if picture.start else 0.0
    side = "top" if picture.end == "footer" else "bottom"
    below = 24.0 if side == "bottom" else 0.0
    height = _edge(page, picture.end, side) + below - top
    area = {"x": 0.0, "y": top, "width": float(WIDE), "height": height}
    page.screenshot(path=to, full_page=True, clip=area)  # type: ignore[arg-type]
    context.close()


def _edge(page: Page, selector: str, side: str) -> float:
    """Where an element's edge lies on the page, in pixels."""
    box = page.locator(selector).first.bounding_box()
    assert box is not None, selector
    return box["y"] + (0.0 if side == "top" else box["height"])


if __name__ == "__main__":
    main()
