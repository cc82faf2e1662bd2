"""Size against quality: a dot a codec, the front that none beats, keep's line dashed."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from ui.answers import best_codec
from ui.contents import CodecRow
from ui.figures import fixed, size
from ui.plots import Axis, element, nice_axis

HEIGHT = 220
ROUND_MARKS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
NEAR_X, NEAR_Y = 0.16, 15.0  # labels closer than this would touch


def front(codecs: Sequence[CodecRow]) -> tuple[CodecRow, ...]:
    """Those that no smaller codec equals in drafts held, smallest first."""
    found: list[CodecRow] = []
    for row in sorted(codecs, key=lambda row: (row.draft_bytes, -row.drafts_held)):
        if not found or row.drafts_held > found[-1].drafts_held:
            found.append(row)
    return tuple(found)


def pareto_plot(codecs: Sequence[CodecRow]) -> Markup:
    """Drafts held by draft size, log axis; a bar is one paired standard error."""
    sizes = [max(row.draft_bytes, 1) for row in codecs]
    low, high = math.log2(min(sizes)) - 0.35, math.log2(max(sizes)) + 0.35
    x_axis = Axis(low, high, tuple(_size_ticks(low, high)))
    y_axis = nice_axis([end for row in codecs for end in _bar(row)], intervals=4)
    best, leading = best_codec(tuple(codecs)), front(codecs)
    parts = [
        *_grid(x_axis, y_axis),
        *_keep_line(codecs, y_axis),
        _line(leading, x_axis, y_axis),
    ]
    for row in codecs:
        parts += _dot(row, x_axis, y_axis, is_front=row in leading, is_best=row is best)
    parts += _labels(codecs, x_axis, y_axis)
    told = "; ".join(
        f"{row.codec} {size(row.draft_bytes)}, {fixed(row.drafts_held, 3)} held"
        for row in codecs
    )
    pick = f". Smallest as good as keep: {best.codec}" if best else ""
    return element("svg", *parts, height=HEIGHT, role="img", aria_label=told + pick)


def _bar(row: CodecRow) -> tuple[float, float]:
    if row.to_keep is not None:
        return row.drafts_held - row.to_keep.se, row.drafts_held + row.to_keep.se
    return row.drafts_held, row.drafts_held


def _x(row: CodecRow, axis: Axis) -> float:
    return axis.share(math.log2(max(row.draft_bytes, 1)))


def _y(value: float, axis: Axis) -> float:
    return HEIGHT * (1 - axis.share(value))


def _size_ticks(low: float, high: float) -> list[float]:
    """Log2 of round sizes inside the axis, six at most."""
    found = [
        math.log2(mark * 10**power)
        for power in range(13)
        for mark in ROUND_MARKS
        if low <= math.log2(mark * 10**power) <= high
    ]
    return found[:: max(1, -(-len(found) // 6))]


def _grid(x_axis: Axis, y_axis: Axis) -> list[Markup]:
    parts = []
    for i, tick in enumerate(y_axis.ticks):
        y = _y(tick, y_axis)
        parts.append(
            element("line", class_="g" if i else "ax", x1=0, x2="100%", y1=y, y2=y)
        )
        words = fixed(tick, y_axis.places)
        parts.append(element("text", words, x=-8, y=y + 4, text_anchor="end"))
    for tick in x_axis.ticks:
        at = x_axis.at(tick)
        words = size(round(2**tick))
        parts.append(element("text", words, x=at, y=HEIGHT + 17, text_anchor="middle"))
    return parts


def _keep_line(codecs: Sequence[CodecRow], axis: Axis) -> list[Markup]:
    keep = next((row for row in codecs if row.codec == "keep"), None)
    if keep is None:
        return []
    y = _y(keep.drafts_held, axis)
    return [element("line", class_="ref", x1=0, x2="100%", y1=y, y2=y)]


def _line(leading: Sequence[CodecRow], x_axis: Axis, y_axis: Axis) -> Markup:
    places = " ".join(
        f"{100 * _x(row, x_axis):.2f},{_y(row.drafts_held, y_axis):.1f}" for row in leading
    )
    line = element("polyline", class_="front", points=places)
    return element("svg", line, viewBox=f"0 0 100 {HEIGHT}", width="100%", height=HEIGHT,
                   preserveAspectRatio="none", overflow="visible")  # fmt: skip


def _dot(
    row: CodecRow, x_axis: Axis, y_axis: Axis, *, is_front: bool, is_best: bool
) -> list[Markup]:
    at, y = f"{100 * _x(row, x_axis):.2f}%", _y(row.drafts_held, y_axis)
    low, high = (_y(end, y_axis) for end in _bar(row))
    parts = [element("line", class_="ih", x1=at, x2=at, y1=low, y2=high)]
    parts.append(element("circle", class_="mh" if is_front else "off", cx=at, cy=y, r=4))
    if is_best:
        parts.append(element("circle", class_="ring", cx=at, cy=y, r=8.5))
    return parts


def _labels(codecs: Sequence[CodecRow], x_axis: Axis, y_axis: Axis) -> list[Markup]:
    """Names above their dots, moved down the free way where another name stands."""
    placed: list[tuple[float, float]] = []
    parts = []
    for row in sorted(codecs, key=lambda row: -row.draft_bytes):
        x, y = _x(row, x_axis), _y(row.drafts_held, y_axis)
        low, high = (_y(end, y_axis) for end in _bar(row))
        top, foot = min(high, y - 6) - 8, max(low, y + 6) + 16
        spots = [top, foot, top - 15, foot + 15, foot + 30]
        free = [spot for spot in spots if not any(
            abs(x - px) < NEAR_X and abs(spot - py) < NEAR_Y for px, py in placed
        )]  # fmt: skip
        spot = free[0] if free else spots[0]
        placed.append((x, spot))
        anchor = "end" if x > 0.9 else "start" if x < 0.08 else "middle"
        at = f"{100 * x:.2f}%"
        parts.append(
            element("text", row.codec, class_="ink", x=at, y=spot, text_anchor=anchor)
        )
    return parts
