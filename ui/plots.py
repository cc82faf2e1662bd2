"""Small SVG plots, drawn on the server: x in per cent, y in pixels, type never scales.

Every string passes through `element`, which escapes it. Colours are classes of plots.css:
orange and hollow is stale, blue and filled is healed, the rest is ink, told apart by shape.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from ui.contents import DraftName
from ui.figures import fixed

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
HEADLINE_MIDDLE = 36.0
# Half sizes of the markers; a diamond and a triangle need more to weigh the same.
SHAPES: dict[DraftName, str] = {
    "source": "M0 -5.5 5.5 0 0 5.5 -5.5 0z",
    "stale": "M-4 0a4 4 0 1 0 8 0 4 4 0 1 0 -8 0z",
    "healed": "M-4 0a4 4 0 1 0 8 0 4 4 0 1 0 -8 0z",
    "control": "M-3.7 -3.7h7.4v7.4h-7.4z",
    "fresh": "M0 -4.8 4.8 3.6h-9.6z",
}


def element(tag: str, *children: Markup | str, **attributes: str | float) -> Markup:
    """One SVG element; `class_` is `class`, an underscore a hyphen; all text is escaped."""
    pairs = (
        Markup(' {}="{}"').format(name.strip("_").replace("_", "-"), _plain(value))
        for name, value in attributes.items()
    )
    inner = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(tag, Markup("").join(pairs), inner)


def _plain(value: str | float) -> str:
    return value if isinstance(value, str) else f"{round(value, 2):g}"


@dataclass(frozen=True)
class Axis:
    """A linear axis from `low` to `high`, with the values that get a line and a label."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high one, clipped beyond them."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)

    def at(self, value: float) -> str:
        """The same in per cent, for an SVG attribute."""
        return f"{100 * self.share(value):.2f}%"

    @property
    def places(self) -> int:
        """Decimals that tell the ticks apart."""
        step = self.ticks[1] - self.ticks[0]
        return next(
            (n for n in range(7) if abs(step * 10**n - round(step * 10**n)) < 1e-6), 7
        )


def nice_axis(values: Sequence[float], *, intervals: int = 5, zero: bool = False) -> Axis:
    """The tightest axis of round ticks about the values, at most `intervals` steps."""
    low = min([*values, 0.0] if zero or not values else values)
    high = max(values, default=1.0)
    if high <= low:
        high = low + 0.1 * max(abs(low), 1.0)
    spread = high - low
    power = 10.0 ** (math.floor(math.log10(spread / intervals)) - 1)
    while True:
        for factor in STEPS:
            step = factor * power
            first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
            last = max(last, first + 1)
            if last - first <= intervals:
                ticks = tuple(i * step for i in range(first, last + 1))
                return Axis(ticks[0], ticks[-1], ticks)
        power *= 10.0


@dataclass(frozen=True)
class Mark:
    """A draft's figure with its interval, if it has one."""

    draft: DraftName
    value: float
    interval: tuple[float, float] | None = None


def marker(draft: DraftName, x: str, y: float, scale: float = 1.0) -> Markup:
    """The draft's own shape at x (per cent) and y (pixels)."""
    path = element(
        "path", d=SHAPES[draft], class_=f"m {draft}-m", transform=f"scale({scale:g})"
    )
    return element("svg", path, x=x, y=y, overflow="visible")


def band(axis: Axis, mark: Mark, middle: float, height: float) -> Markup:
    """The interval as a soft bar, taller than the marker so that it shows when narrower."""
    if mark.interval is None:
        return Markup("")
    low, high = (axis.share(end) for end in mark.interval)
    width = f"{100 * (high - low):.2f}%"
    return element(
        "rect", class_=f"{mark.draft}-b", x=f"{100 * low:.2f}%", width=width,
        y=middle - height / 2, height=height, rx=2,
    )  # fmt: skip


def strip(
    axis: Axis,
    marks: Sequence[Mark],
    label: str,
    height: int = 26,
    reference: float | None = None,
) -> Markup:
    """One row of dots with their intervals, joined by a hairline when there are two."""
    middle = height / 2
    parts = [
        element("line", class_="g", x1=axis.at(tick), x2=axis.at(tick), y1=0, y2=height)
        for tick in axis.ticks
    ]
    if reference is not None:
        at = axis.at(reference)
        parts.append(element("line", class_="ref", x1=at, x2=at, y1=0, y2=height))
    parts += _joined(axis, marks, middle)
    for mark in marks:
        parts.append(band(axis, mark, middle, height * 0.58))
        parts.append(marker(mark.draft, axis.at(mark.value), middle, height / 26))
    return element(
        "svg", *parts, class_="strip", height=height, role="img", aria_label=label
    )


def scale(axis: Axis, spell: Callable[[float], str]) -> Markup:
    """The labels under a column of strips; hidden from readers, who have the figures."""
    labels = [
        element("text", spell(tick), x=axis.at(tick), y=12, text_anchor="middle")
        for tick in axis.ticks
    ]
    return element("svg", *labels, class_="strip", height=18, aria_hidden="true")


def headline(axis: Axis, marks: Sequence[Mark], source: float | None, label: str) -> Markup:
    """Stale and healed on the axis of all a round could hold, the source a dashed line."""
    ends = sorted(marks, key=lambda mark: mark.value)
    parts = [part for tick in axis.ticks for part in _numbered_line(axis, tick)]
    if source is not None:
        at = axis.at(source)
        parts.append(element("line", class_="ref", x1=at, x2=at, y1=18, y2=58))
        words = f"source {fixed(source)}"
        parts.append(element("text", words, x=at, y=70, text_anchor="middle"))
    parts += _joined(axis, ends, HEADLINE_MIDDLE)
    for mark, anchor in zip(ends, _anchors(axis, ends), strict=True):
        at = axis.at(mark.value)
        name = element("text", fixed(mark.value), class_=f"{mark.draft}-t", y=-24, x=0,
                       text_anchor=anchor)  # fmt: skip
        parts += [
            band(axis, mark, HEADLINE_MIDDLE, 22),
            marker(mark.draft, at, HEADLINE_MIDDLE, 1.5),
            element("svg", name, x=at, y=HEADLINE_MIDDLE, overflow="visible"),
        ]
    return element("svg", *parts, class_="strip", height=92, role="img", aria_label=label)


def _numbered_line(axis: Axis, tick: float) -> tuple[Markup, Markup]:
    at = axis.at(tick)
    line = element("line", class_="g", x1=at, x2=at, y1=18, y2=54)
    return line, element("text", f"{tick:g}", x=at, y=90, text_anchor="middle")


def _joined(axis: Axis, marks: Sequence[Mark], middle: float) -> list[Markup]:
    """The hairline between two dots; nothing for any other number of them."""
    if len(marks) != 2:
        return []
    x1, x2 = (axis.at(mark.value) for mark in marks)
    return [element("line", class_="join", x1=x1, x2=x2, y1=middle, y2=middle)]


def _anchors(axis: Axis, marks: Sequence[Mark]) -> tuple[str, ...]:
    """Labels part to both sides where two dots lie too close for both above."""
    if (
        len(marks) == 2
        and abs(axis.share(marks[1].value) - axis.share(marks[0].value)) < 0.12
    ):
        return ("end", "start")
    return ("middle",) * len(marks)


def bar(share: float) -> Markup:
    """A thin bar from 0 for a part of the whole; the figure stands beside it."""
    width = f"{100 * min(max(share, 0.0), 1.0):.2f}%"
    rail = element("rect", class_="rail", width="100%", height=6, rx=3)
    return element("svg", rail, element("rect", class_="part", width=width, height=6, rx=3),
                   class_="bar-s", height=6, aria_hidden="true")  # fmt: skip


def key_mark(draft: DraftName) -> Markup:
    """The draft's shape in a key or before its name."""
    return element(
        "svg",
        marker(draft, "50%", 7),
        class_="key-mark",
        width=14,
        height=14,
        aria_hidden="true",
    )
