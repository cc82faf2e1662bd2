"""Strips that stand in a table's rows as one plot: under each other, on their one axis."""

from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from ui.plots import element

ROW, SIDE = 26, 20  # pixels: of a row, and of the strip in it
LEFT, WIDTH = "40%", "46%"  # where the axis lies
NAME = 46  # characters of a row's name that fit before it


@dataclass(frozen=True)
class StripRow:
    """A strip with what stands before and behind it."""

    name: str
    strip: Markup
    value: str


def stacked(rows: Iterable[StripRow], scale: Markup) -> tuple[Markup, int]:
    """The plot and its height in pixels; nothing and 0 where no row has a strip."""
    parts: list[Markup] = []
    y = 0
    for row in rows:
        if not row.strip:
            continue
        name = row.name if len(row.name) <= NAME else f"{row.name[: NAME - 1]}…"
        parts += [
            element("text", name, x=0, y=y + 15),
            element("svg", row.strip, x=LEFT, y=y, width=WIDTH, height=SIDE),
            element("text", row.value, x="100%", y=y + 15, text_anchor="end"),
        ]
        y += ROW
    if not parts:
        return Markup(""), 0
    height = y + SIDE
    parts.append(element("svg", scale, x=LEFT, y=y, width=WIDTH, height=SIDE,
                         overflow="visible"))  # fmt: skip
    label = f"{y // ROW} rows with their 95 % intervals on one axis"
    return element("svg", *parts, height=height, role="img", aria_label=label), height
