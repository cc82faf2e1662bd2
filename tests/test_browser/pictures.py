"""The pictures in docs/img, taken of a store with finished heals.

    python -m tests.test_browser.pictures STORE [FOLDER]

`heal demo` makes such a store. The footer, which names its folder, is left out.
"""

import json
import shutil
import sys
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from tests.test_browser.conftest import serving

WIDE, TALL = 1280, 1500  # pixels; a longer page is cut there
THEMES = {"light": "", "dark": "-dark"}


def main() -> None:
    root = Path(sys.argv[1])
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else "docs/img")
    with serving(root) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name, path in _paths(root, address).items():
            for theme, ending in THEMES.items():
                _picture(browser, address + path, theme, folder / f"{name}{ending}.png")
        browser.close()


def _paths(root: Path, address: str) -> dict[str, str]:
    with urllib.request.urlopen(f"{address}/api/heals.json") as answer:
        heals = json.load(answer)["rows"]
    done = [one["id"] for one in heals if one["state"] == "done"]
    events: list[dict[str, Any]] = json.loads(
        (root / "runs" / done[0] / "run.json").read_text()
    )["events"]

    def key(stage: str, label: str = "") -> str:
        found = [e["key"] for e in events if e["name"] == stage and e["label"] == label]
        return f"{stage}/{found[-1]}"

    measure, training = key("measure_draft", "healed keep"), key("train_draft", "heal")
    return {
        "heals": "/",
        "heal": f"/heal/{done[0]}",
        "compare": f"/compare?a={done[0]}",
        "windows": f"/windows/{measure}?draft=difference&c=kept",
        "training": f"/training/{training}",
        "stage": f"/stage/{training}",
        "store": "/store",
    }


def _picture(browser: Browser, url: str, theme: str, path: Path) -> None:
    context = browser.new_context(viewport={"width": WIDE, "height": 800})
    page = context.new_page()
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]  # two of its literals
    page.goto(url, timeout=120_000)
    end = page.evaluate("document.querySelector('footer').getBoundingClientRect().top")
    area = {"x": 0.0, "y": 0.0, "width": float(WIDE), "height": min(float(end), TALL)}
    page.screenshot(path=path, full_page=True, clip=area)  # type: ignore[arg-type]
    context.close()


if __name__ == "__main__":
    main()
