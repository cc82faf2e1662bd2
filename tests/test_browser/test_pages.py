"""Every page in Chromium: silent, at home, legible, by keyboard, narrow and wide, dark."""

import re
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.inspected import Inspected
    from tests.test_browser.conftest import Watched

pytestmark = pytest.mark.browser

WIDTHS = (360, 768, 1280, 1920)
CHECKS = (Path(__file__).parent / "checks.js").read_text(encoding="utf-8")


def paths(seen: "Inspected") -> dict[str, str]:
    return {
        "heals": "/",
        "filtered": "/?q=nothing-like-it",
        "heal": f"/heal/{seen.done}",
        "damaged-heal": f"/heal/{seen.longer}",
        "failed": f"/heal/{seen.failed}",
        "interrupted": f"/heal/{seen.cut}",
        "running": f"/heal/{seen.running}",
        "stage": f"/stage/train_draft/{seen.key('train_draft')}",
        "damaged": f"/stage/{seen.damaged}/check",
        "unfinished": f"/stage/train_draft/{'b' * 32}",
        "store": "/store?keep=3",
        "stage-list": "/store?stage=measure_draft",
        "training": f"/training/train_draft/{seen.made_by(seen.done, 'train_draft')}",
        "training-live": f"/training/train_draft/{'b' * 32}",
        "compare": f"/compare?pick={seen.done}&pick={seen.cached}",
        "before-after": f"/compare?a={seen.done}",
        "compare-what": "/compare",
        "windows": windows(seen),
        "windows-step": f"{windows(seen)}&c=2&draft=difference",
        "arrays": f"/arrays/trunk_pass/{seen.key('trunk_pass')}?name=hidden&w=9",
        "arrays-top": f"/arrays/trunk_pass/{seen.key('trunk_pass')}?name=topk_p&w=9&row=3",
    }


NAMES = ("heals", "filtered", "heal", "damaged-heal", "failed", "interrupted", "running",
         "stage", "damaged", "unfinished", "store", "stage-list",
         "training", "training-live", "compare", "before-after", "compare-what",
         "windows", "windows-step", "arrays", "arrays-top")  # fmt: skip


def windows(seen: "Inspected") -> str:
    return f"/windows/measure_draft/{seen.made_by(seen.done, 'measure_draft')}?by=gain"


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_silent_at_home_and_legible(
    watched: "Watched", seen: "Inspected", name: str
) -> None:
    page = watched.open(paths(seen)[name])
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        found: dict[str, Any] = page.evaluate(CHECKS)
        assert found["contrast"] == [], theme
    assert found["unnamed"] == []
    assert found["doubled"] == []
    assert found["headings"] == 1
    assert watched.complaints == []
    assert watched.elsewhere == []


@pytest.mark.parametrize("name", NAMES)
def test_no_page_scrolls_sideways(watched: "Watched", seen: "Inspected", name: str) -> None:
    page = watched.open(paths(seen)[name])
    too_wide = {}
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if over > 0:
            too_wide[width] = over
    assert too_wide == {}


def test_rows_are_walked_picked_and_compared_by_keyboard(
    watched: "Watched", seen: "Inspected"
) -> None:
    page = watched.open("/")
    expect(page.locator("[data-compare]")).to_be_disabled()
    page.keyboard.press("j")
    first = _focused(page)
    page.keyboard.press("x")
    page.keyboard.press("j")
    assert _focused(page) != first
    page.keyboard.press("x")
    expect(page.locator("[data-compare]")).to_be_enabled()
    page.keyboard.press("k")
    assert _focused(page) == first
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("longer.yaml")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=longer.yaml**")
    expect(page.locator("tbody tr")).to_have_count(1)


def _focused(page: "Page") -> str:
    return str(page.evaluate("document.activeElement.getAttribute('href')"))


def test_the_first_stop_is_skip_to_content_and_all_keys_are_told(
    watched: "Watched",
) -> None:
    page = watched.open("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")
    page.keyboard.press("?")
    expect(page.locator("dialog#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog#keys")).to_be_hidden()


def test_the_theme_is_turned_and_remembered(watched: "Watched") -> None:
    page = watched.open("/")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(19, 21, 23)"
    watched.open("/store")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_sliders_redraw_as_the_server_would_and_keep_their_bands(
    watched: "Watched", seen: "Inspected"
) -> None:
    read = """() => [...document.querySelectorAll("#speed polygon, #speed polyline")].map(
        (one) => one.getAttribute("points").split(" ").length)"""
    told = (
        "() => [...document.querySelectorAll('[data-best]')].map((one) => one.textContent)"
    )
    page = watched.open(f"/heal/{seen.done}")
    shapes = page.evaluate(read)
    page.locator("#verify").fill("1.5")
    page.locator("#draft").fill("0.3")
    moved = page.evaluate(told)
    assert page.evaluate(read) == shapes
    watched.open(f"/heal/{seen.done}?verify=1.5&draft=0.3")
    assert page.evaluate(told) == moved


def test_the_live_part_follows_the_run(watched: "Watched", seen: "Inspected") -> None:
    page = watched.open(f"/heal/{seen.running}")
    expect(page.locator("progress")).to_have_attribute("value", "5")
    said = seen.root / "runs" / seen.running / "progress.json"
    said.write_text(said.read_text().replace('"done": 5', '"done": 9'))
    expect(page.locator("progress")).to_have_attribute("value", "9", timeout=6000)


def test_nothing_of_a_hostile_name_runs(watched: "Watched", seen: "Inspected") -> None:
    dialogs: list[str] = []
    watched.page.on("dialog", lambda one: dialogs.append(one.message))
    page = watched.open(f"/heal/{seen.failed}")
    assert "<script>alert" in page.locator("#cmd").inner_text()
    assert dialogs == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_main_pages_are_pictured(
    watched: "Watched", seen: "Inspected", theme: str, tmp_path: Path
) -> None:
    page = watched.page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]  # two of its literals
    for name in ("heals", "heal", "stage", "store"):
        watched.open(paths(seen)[name])
        picture = tmp_path / f"{name}-{theme}.png"
        page.screenshot(path=picture, full_page=True)
        assert picture.stat().st_size > 20_000


def test_the_panel_follows_the_pointer_the_focus_and_the_arrows(
    watched: "Watched", seen: "Inspected"
) -> None:
    page = watched.open(windows(seen))
    tokens, panel = page.locator(".tokens a"), page.locator("[data-panel]")
    seats: set[str] = set()
    tokens.nth(6).hover()
    expect(tokens.nth(6)).to_have_class(re.compile(r"\bsel\b"))
    seats.add(panel.inner_text())
    expect(panel.locator(".top4 li").nth(3)).to_be_visible()
    tokens.nth(8).focus()
    expect(tokens.nth(8)).to_have_class(re.compile(r"\bsel\b"))
    seats.add(panel.inner_text())
    page.keyboard.press("ArrowRight")
    expect(tokens.nth(9)).to_be_focused()
    expect(tokens.nth(9)).to_have_class(re.compile(r"\bsel\b"))
    seats.add(panel.inner_text())
    assert len(seats) == 3
    at = (tokens.nth(9).get_attribute("title") or "").partition(":")[0]
    page.keyboard.press("2")
    page.wait_for_url("**c=2*")
    assert f"&at={at}&" in page.url


def test_windows_are_turned_by_brackets(watched: "Watched", seen: "Inspected") -> None:
    page = watched.open(windows(seen))
    link = page.locator('[data-key="]"], [data-key="["]').first
    wanted, key = link.get_attribute("href"), link.get_attribute("data-key")
    assert wanted is not None
    assert key is not None
    page.keyboard.press(key)
    page.wait_for_url(f"**{wanted}")


def test_a_hover_that_got_no_answer_is_asked_again(
    watched: "Watched", seen: "Inspected"
) -> None:
    page = watched.open(windows(seen))
    token = page.locator(".tokens a").nth(6)
    href = token.get_attribute("href")
    page.route(f"**{href}", lambda route: route.fulfill(status=503, body=""))
    with page.expect_response(f"**{href}"):
        token.hover()
    page.unroute(f"**{href}")
    page.mouse.move(0, 0)
    token.hover()
    expect(token).to_have_class(re.compile(r"\bsel\b"))


def test_a_head_leaves_its_connection_as_it_was(served: str) -> None:
    """A body sent after it would be taken for the next answer."""
    with closing(HTTPConnection(served.removeprefix("http://"))) as asked:
        for method in ("HEAD", "GET", "HEAD"):
            asked.request(method, "/")
            answer = asked.getresponse()
            body = answer.read()
            assert answer.status == 200
            assert int(answer.headers["content-length"]) > 1000
            assert bool(body) is (method == "GET")
