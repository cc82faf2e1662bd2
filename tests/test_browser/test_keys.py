"""The keys that the overlay promises, and the navigation's current item, in Chromium."""

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.test_browser.test_pages import NAMES, paths, windows

if TYPE_CHECKING:
    from tests.inspected import Inspected
    from tests.test_browser.conftest import Watched

pytestmark = pytest.mark.browser

PROMISED = {"j", "k", "/", "x", "c", "←", "→", "1", "9", "[", "]", "t", "?"}
HEALS = {"heals", "filtered", "heal", "damaged-heal", "failed", "interrupted", "running"}
COMPARE = {"compare", "before-after", "compare-what"}


def test_the_overlay_promises_the_keys_tested_here(watched: "Watched") -> None:
    page = watched.open("/")
    page.keyboard.press("?")
    assert set(page.locator("dialog#keys kbd").all_inner_texts()) == PROMISED
    page.keyboard.press("t")  # no key acts behind the dialog
    assert page.evaluate("document.documentElement.dataset.theme") is None


@pytest.mark.parametrize("name", NAMES)
def test_the_navigation_marks_where_one_is(
    watched: "Watched", seen: "Inspected", name: str
) -> None:
    page = watched.open(paths(seen)[name])
    wanted = "Heals" if name in HEALS else "Compare" if name in COMPARE else "Store"
    current = page.locator("nav[aria-label=Main] [aria-current]")
    assert current.all_inner_texts() == [wanted]
    assert current.get_attribute("aria-current") == "page"


def test_two_picks_and_c_compare_them(watched: "Watched", seen: "Inspected") -> None:
    page = watched.open("/")
    page.keyboard.press("c")  # nothing is picked, so nothing happens
    for run in (seen.done, seen.longer):
        page.locator(f'[data-row][href="/heal/{run}"]').focus()
        page.keyboard.press("x")
    page.keyboard.press("c")
    page.wait_for_url("**/compare?**")
    chosen = {page.locator(f"select#{side}").input_value() for side in ("a", "b")}
    assert chosen == {seen.done, seen.longer}


def test_arrows_walk_the_tokens_both_ways_and_stop_at_the_ends(
    watched: "Watched", seen: "Inspected"
) -> None:
    page = watched.open(windows(seen))
    tokens = page.locator(".tokens a")
    tokens.nth(1).focus()
    for key, place in (("ArrowLeft", 0), ("ArrowLeft", 0), ("ArrowRight", 1)):
        page.keyboard.press(key)
        expect(tokens.nth(place)).to_be_focused()
    tokens.last.focus()
    page.keyboard.press("ArrowRight")
    expect(tokens.last).to_be_focused()


@pytest.mark.parametrize("name", ["windows", "arrays"])
def test_both_brackets_turn_and_turn_back(
    watched: "Watched", seen: "Inspected", name: str
) -> None:
    start = paths(seen)[name]
    if name == "windows":
        start = f"{start.partition('?')[0]}?c=2&draft=stale"  # the first of them
    page = watched.open(start)
    window = page.locator("h1").inner_text()
    page.keyboard.press("]")
    expect(page.locator("h1")).not_to_have_text(window)
    page.wait_for_load_state()  # its heading is there before it hears keys
    page.keyboard.press("[")
    expect(page.locator("h1")).to_have_text(window)
    if name == "windows":  # what was chosen stays chosen
        assert "c=2" in page.url
        assert "draft=stale" in page.url


def test_digits_choose_the_step_and_one_too_many_does_nothing(
    watched: "Watched", seen: "Inspected"
) -> None:
    page = watched.open(windows(seen))
    page.keyboard.press("2")
    page.wait_for_url("**c=2*")
    page.keyboard.press("9")
    page.keyboard.press("1")
    page.wait_for_url("**c=1*")
    expect(page.locator(".seg [aria-current]", has_text="step 1")).to_be_visible()


@pytest.mark.parametrize("name", ["heals", "windows", "training", "arrays"])
def test_a_slash_leads_to_the_field_and_typing_there_is_typing(
    watched: "Watched", seen: "Inspected", name: str
) -> None:
    page = watched.open(paths(seen)[name])
    here = page.url
    page.keyboard.press("/")
    field = page.locator("[data-search]")
    expect(field).to_be_focused()
    page.keyboard.press("2")
    page.keyboard.press("t")
    page.keyboard.press("]")
    assert "2" in field.input_value()
    assert page.evaluate("document.documentElement.dataset.theme") is None
    assert page.url == here


@pytest.mark.parametrize("name", ["store", "stage-list", "stage", "heal"])
def test_rows_of_other_pages_are_walked_and_opened(
    watched: "Watched", seen: "Inspected", name: str
) -> None:
    page = watched.open(paths(seen)[name])
    rows = page.locator("[data-row]").filter(visible=True)
    page.keyboard.press("j")
    expect(rows.nth(0)).to_be_focused()
    if rows.count() > 1:
        page.keyboard.press("j")
        expect(rows.nth(1)).to_be_focused()
        page.keyboard.press("k")
    wanted = rows.nth(0).get_attribute("href")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{wanted}")


def test_a_hovered_chain_takes_its_downloads_along(
    watched: "Watched", seen: "Inspected"
) -> None:
    page = watched.open(windows(seen))
    token = page.locator(".tokens a").nth(8)
    at = (token.get_attribute("title") or "").partition(":")[0]
    token.hover()
    link = page.get_by_role("link", name="The chain as JSON")
    expect(link).to_have_attribute("href", re.compile(f"at={at}&"))
    rows = page.request.get(watched.served + str(link.get_attribute("href"))).json()["rows"]
    assert page.locator(".chain-t tbody tr").count() == len(rows) + 1  # and what is kept


def test_a_training_is_followed_while_it_runs(
    watched: "Watched", seen: "Inspected"
) -> None:
    page = watched.open(f"/training/train_draft/{'b' * 32}")
    said = seen.root / "runs" / seen.running / "progress.json"
    before = said.read_text()
    try:
        said.write_text(re.sub(r'"done": \d+', '"done": 11', before))
        expect(page.locator("progress")).to_have_attribute("value", "11", timeout=6000)
    finally:
        said.write_text(before)


def test_a_training_is_zoomed_by_its_form(watched: "Watched", seen: "Inspected") -> None:
    page = watched.open(paths(seen)["training"])
    page.locator("#from").fill("4")
    page.locator("#to").fill("8")
    page.get_by_role("button", name="Zoom").click()
    page.wait_for_url("**from=4&to=8**")
    steps = page.locator("#evaluations tbody th").all_inner_texts()
    assert steps
    assert all(4 <= int(step.split()[0]) <= 8 for step in steps)
    link = page.get_by_role("link", name="Loss as SVG").get_attribute("href")
    assert link is not None
    assert link.endswith("from=4&to=8")
