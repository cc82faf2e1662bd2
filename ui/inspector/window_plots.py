"""Drafts kept from each start: along the whole window, and start by start."""

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from ui.inspector.window_data import Window
from ui.plots import element

POINTS = 128  # of the line along the window
OVERVIEW, STARTS = 88, 66


def overview_plot(window: Window, depth: int, begin: int, end: int) -> Markup:
    """Mean drafts kept, stale and healed, along the window; a part looked at is shaded."""
    length = len(window.ids)
    each = max(1, -(-length // POINTS))
    parts = []
    if 0 < end - begin < length:
        parts.append(element("rect", class_="view", x=_at(begin, length), y=0,
                             height=OVERVIEW, width=_at(end - begin, length)))  # fmt: skip
    parts += _grid(depth, OVERVIEW)
    for border in (_at(start, length) for start in window.record_starts if start):
        parts.append(element("line", class_="ref", x1=border, x2=border, y1=0, y2=OVERVIEW))
    said = []
    for role, chains in window.chains.items():
        kept = chains.kept[:length]
        parts.append(_line(kept, each, depth, "ls" if role == "stale" else "lh"))
        said.append(f"{role} {kept.mean():.2f}")
    for i in range(5):
        place = round(i * length / 4)
        parts.append(element("text", f"{place:,}", x=_at(place, length), y=OVERVIEW + 17,
                             text_anchor="middle"))  # fmt: skip
    label = f"Mean drafts kept along the window: {', '.join(said)} of {depth}"
    return element("svg", *parts, height=OVERVIEW, role="img", aria_label=label)


def starts_plot(window: Window, depth: int, begin: int, end: int, start: int) -> Markup:
    """A bar a start for healed, a ring for stale; the start looked at is full."""
    count = max(end - begin, 1)
    parts = _grid(depth, STARTS)
    for role, chains in window.chains.items():
        for x, kept in enumerate(chains.kept[begin:end].tolist()):
            y = STARTS * (1 - kept / depth)
            if role == "stale" and kept:
                middle = _at(x + 0.5, count)
                parts.append(element("circle", class_="ms dot", cx=middle, cy=y, r=2.2))
            elif kept:
                look = "fh on" if begin + x == start else "fh"
                place = _at(x + 0.1, count)
                parts.insert(0, element("rect", class_=look, x=place, y=y,
                             width=_at(0.8, count), height=STARTS - y))  # fmt: skip
    for at in (begin, begin + count // 2, end):
        parts.append(element("text", f"{at:,}", x=_at(at - begin, count),
                             y=STARTS + 17, text_anchor="middle"))  # fmt: skip
    label = f"Drafts kept from each start, {begin} to {end}"
    return element("svg", *parts, height=STARTS, role="img", aria_label=label)


def _at(place: float, length: int) -> str:
    return f"{100 * place / max(length, 1):.2f}%"


def _grid(depth: int, height: int) -> list[Markup]:
    parts = []
    for kept in range(depth + 1):
        y = height * (1 - kept / depth)
        line = "g" if kept else "ax"
        parts.append(element("line", class_=line, x1=0, x2="100%", y1=y, y2=y))
        if kept in (0, depth):
            parts.append(element("text", str(kept), x=-8, y=y + 4, text_anchor="end"))
    return parts


def _line(kept: npt.NDArray[np.int64], each: int, depth: int, look: str) -> Markup:
    length = len(kept)
    places = []
    for begin in range(0, length, each):
        part = kept[begin : begin + each]
        x = 100 * (begin + len(part) / 2) / length
        places.append(f"{x:.2f},{OVERVIEW * (1 - part.mean() / depth):.1f}")
    line = element("polyline", class_=f"{look} thin", points=" ".join(places))
    return element("svg", line, viewBox=f"0 0 100 {OVERVIEW}", width="100%",
                   height=OVERVIEW, preserveAspectRatio="none")  # fmt: skip
