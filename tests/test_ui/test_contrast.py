"""Text reaches 4.5:1 on every ground in both themes, by WCAG 2.2's formula."""

import re
from itertools import product
from pathlib import Path

import pytest

import ui.report

TOKENS = Path(ui.report.__file__).with_name("tokens.css").read_text(encoding="utf-8")
STYLE = "".join(
    Path(ui.report.__file__).with_name(name).read_text(encoding="utf-8")
    for name in ("plots.css", "report.css")
)
TEXT = ("ink", "ink-2", "ink-3", "stale", "healed", "done", "cached", "running")
GROUND = ("bg", "surface", "sunken")
MARKS = ("stale-mark", "healed-mark", "ink-2", "ink")


def themes() -> dict[str, dict[str, str]]:
    light, dark = TOKENS.split("@media (prefers-color-scheme: dark)")
    colours = re.compile(r"--([\w-]+): (#[0-9a-f]{6});")
    first = dict(colours.findall(light))
    return {"light": first, "dark": {**first, **dict(colours.findall(dark))}}


def luminance(colour: str) -> float:
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_formula_gives_the_standards_own_numbers() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_reaches_four_and_a_half(theme: str) -> None:
    colours = themes()[theme]
    low = {
        (text, ground): round(contrast(colours[text], colours[ground]), 2)
        for text, ground in product(TEXT, GROUND)
        if contrast(colours[text], colours[ground]) < 4.5
    }
    assert low == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_marks_reach_three(theme: str) -> None:
    colours = themes()[theme]
    assert all(contrast(colours[mark], colours["bg"]) >= 3 for mark in MARKS)


def test_colours_live_in_the_tokens_only_and_all_that_are_used_exist() -> None:
    assert not re.search(r"#[0-9a-f]{3,8}\b|rgb|hsl", STYLE)
    used = set(re.findall(r"var\(--([\w-]+)\)", STYLE))
    known = set(re.findall(r"--([\w-]+):", TOKENS))
    assert used - known == set()
