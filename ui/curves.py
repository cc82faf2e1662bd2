"""Line plots over training steps, one at a time, with the chosen checkpoint marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from ui.contents import DraftName
from ui.figures import fixed
from ui.plots import Axis, element, marker, nice_axis

# Points a line keeps: a phone shows fewer columns, a wide screen no more.
POINTS = 480
HEIGHT = 168
LABEL_SHARE = 0.18  # of the values' spread, above the largest


@dataclass(frozen=True)
class Point:
    """A value at a training step, with its 95 % interval if it has one."""

    step: int
    value: float
    interval: tuple[float, float] | None = None

    @property
    def ends(self) -> tuple[float, ...]:
        """All that its axis must hold."""
        return (self.value, *(self.interval or ()))


@dataclass(frozen=True)
class Curve:
    """What a plot shows: points in step order, one at least, and the chosen one if any.

    The steps' axis goes from `start` to `end`, by default to the last point.
    """

    name: str
    points: tuple[Point, ...]
    chosen: Point | None = None
    is_dotted: bool = False
    zero: bool = False
    start: int = 0
    end: int | None = None

    @property
    def last(self) -> int:
        """Where the axis of steps ends."""
        return self.points[-1].step if self.end is None else self.end

    def axis(self) -> Axis:
        """The value axis."""
        ends = [end for point in self.points for end in point.ends]
        if self.chosen is not None:  # room for its label
            ends.append(max(ends) + LABEL_SHARE * (max(ends) - min(ends)))
        return nice_axis(ends, intervals=4, zero=self.zero)

    def spell(self, value: float) -> str:
        """A value of this curve with one decimal more than its axis has."""
        return fixed(value, min(self.axis().places + 1, 5))


def thin(points: Sequence[Point], limit: int = POINTS) -> list[Point]:
    """At most `limit` points; stretches keep their lowest and highest: spikes stay."""
    if len(points) <= limit:
        return list(points)
    stretch = -(-2 * len(points) // limit)
    kept: list[Point] = []
    for begin in range(0, len(points), stretch):
        part = points[begin : begin + stretch]
        ends = {min(part, key=lambda p: p.value), max(part, key=lambda p: p.value)}
        kept += sorted(ends, key=lambda p: p.step)
    return kept


def line_plot(curve: Curve) -> Markup:
    """The curve on its own axes; its finding is the name a screen reader gives."""
    x_axis = _step_axis(curve.start, curve.last)
    y_axis = curve.axis()
    parts = [*_grid(y_axis), *_feet(x_axis)]
    parts += [_band(curve, x_axis, y_axis), _line(curve, x_axis, y_axis)]
    if curve.is_dotted:
        parts += [_dot(point, x_axis, y_axis) for point in curve.points]
    if curve.chosen is not None:
        parts += _chosen(curve, curve.chosen, x_axis, y_axis)
    return element("svg", *parts, height=HEIGHT, role="img", aria_label=_finding(curve))


def lines_plot(curves: Sequence[Curve], *, dashed: bool = False) -> Markup:
    """Curves of one unit on shared axes, one at least, each named at its end.

    The first is plain; those after it are fainter one by one, or `dashed`.
    """
    x_axis = _step_axis(curves[0].start, max(curve.last for curve in curves))
    ends = [end for curve in curves for point in curve.points for end in point.ends]
    y_axis = nice_axis(ends, intervals=4)
    parts = [*_grid(y_axis), *_feet(x_axis)]
    for place, curve in enumerate(curves):
        opacity = 1.0 if dashed else 1 - 0.6 * place / len(curves)
        dash = "5 4" if dashed and place else "none"
        parts.append(_band(curve, x_axis, y_axis))
        parts.append(_line(curve, x_axis, y_axis, opacity, dash))
    heights = _parted([_y(y_axis, curve.points[-1].value) for curve in curves])
    parts += [
        element(
            "text",
            curve.name,
            class_="ink",
            x=x_axis.at(curve.points[-1].step),
            y=y + 4,
            dx=6,
        )
        for curve, y in zip(curves, heights, strict=True)
    ]
    label = ". ".join(_finding(curve) for curve in curves)
    return element("svg", *parts, height=HEIGHT, role="img", aria_label=label)


def _parted(ys: Sequence[float], apart: float = 13.0) -> list[float]:
    """Labels' heights in pixels, parted until none covers another or leaves below."""
    placed = list(ys)
    order = sorted(range(len(ys)), key=lambda i: ys[i])
    for above, below in pairwise(order):
        placed[below] = max(placed[below], placed[above] + apart)
    lowest = HEIGHT - 4.0
    for one in reversed(order):
        placed[one] = min(placed[one], lowest)
        lowest = placed[one] - apart
    return placed


def _step_axis(first_step: int, last_step: int) -> Axis:
    """From the first to the last step itself, round ones labelled; the line fills it."""
    first, last = float(first_step), float(max(last_step, first_step + 1))
    round_ticks = nice_axis([first, last], intervals=6).ticks
    return Axis(first, last, tuple(t for t in round_ticks if first <= t <= last))


def _finding(curve: Curve) -> str:
    first, last = curve.points[0], curve.points[-1]
    text = f"{curve.name}: {curve.spell(first.value)} at step {first.step:,}, "
    text += f"{curve.spell(last.value)} at step {last.step:,}"
    if curve.chosen is None:
        return text
    return f"{text}; chosen {curve.spell(curve.chosen.value)} at step {curve.chosen.step:,}"


def _y(axis: Axis, value: float) -> float:
    return HEIGHT * (1 - axis.share(value))


def _grid(axis: Axis) -> list[Markup]:
    parts = []
    for i, tick in enumerate(axis.ticks):
        y = _y(axis, tick)
        line = "ax" if i == 0 else "g"
        parts.append(element("line", class_=line, x1=0, x2="100%", y1=y, y2=y))
        parts.append(
            element("text", fixed(tick, axis.places), x=-8, y=y + 4, text_anchor="end")
        )
    return parts


def _feet(axis: Axis) -> list[Markup]:
    return [
        element(
            "text", f"{tick:,.0f}", x=axis.at(tick), y=HEIGHT + 17, text_anchor="middle"
        )
        for tick in axis.ticks
    ]


def _line(
    curve: Curve, x_axis: Axis, y_axis: Axis, opacity: float = 1.0, dash: str = "none"
) -> Markup:
    places = " ".join(
        f"{100 * x_axis.share(p.step):.2f},{_y(y_axis, p.value):.1f}"
        for p in thin(curve.points)
    )
    line = element(
        "polyline", class_="line" if curve.is_dotted else "line fine", points=places,
        stroke_opacity=opacity, stroke_dasharray=dash,
    )  # fmt: skip
    return element("svg", line, viewBox=f"0 0 100 {HEIGHT}", width="100%", height=HEIGHT,
                   preserveAspectRatio="none", overflow="visible")  # fmt: skip


def _band(curve: Curve, x_axis: Axis, y_axis: Axis) -> Markup:
    """The intervals of the points that have one, as one band behind the line."""
    known = [(p.step, p.interval) for p in curve.points if p.interval is not None]
    if len(known) < 2:
        return Markup("")
    above = [(step, ends[1]) for step, ends in known]
    below = [(step, ends[0]) for step, ends in reversed(known)]
    places = " ".join(
        f"{100 * x_axis.share(step):.2f},{_y(y_axis, end):.1f}"
        for step, end in above + below
    )
    area = element("polygon", class_="healed-b", points=places)
    return element("svg", area, viewBox=f"0 0 100 {HEIGHT}", width="100%", height=HEIGHT,
                   preserveAspectRatio="none")  # fmt: skip


def _dot(point: Point, x_axis: Axis, y_axis: Axis) -> Markup:
    """Step 0 is the stale draft itself, so it wears its mark."""
    draft: DraftName = "stale" if point.step == 0 else "healed"
    return marker(draft, x_axis.at(point.step), _y(y_axis, point.value), 0.75)


def _chosen(curve: Curve, point: Point, x_axis: Axis, y_axis: Axis) -> list[Markup]:
    """A ring about the chosen point and its figures, turned inwards near an edge."""
    share, height = x_axis.share(point.step), _y(y_axis, point.value)
    anchor = "end" if share > 0.75 else "start" if share < 0.25 else "middle"
    words = f"{curve.spell(point.value)} at step {point.step:,}"
    # On the side the curve did not come from, unless the words would leave the plot there.
    is_above = HEIGHT - height < 30 or (
        height > 30 and point.value >= curve.points[0].value
    )
    y = -14 if is_above else 24
    text = element("text", words, class_="ink", x=0, y=y, text_anchor=anchor)
    at = x_axis.at(point.step)
    ring = element("circle", class_="ring", cx=at, cy=height, r=8)
    return [ring, element("svg", text, x=at, y=height, overflow="visible")]
