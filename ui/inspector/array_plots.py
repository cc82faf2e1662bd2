"""One window's histogram, heat map with its scale, and a line along its positions."""

import math

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from ui.figures import count, fixed, power_of_ten, scientific
from ui.inspector.array_data import Block, Channel, Series
from ui.inspector.heat import CIVIDIS, NOT_FINITE, Scale
from ui.plots import Axis, element, nice_axis

HISTOGRAM, ALONG, HEAT = 180, 140, 320  # pixels
POINTS = 512  # of a line; more positions share a point, as the band from least to largest
STEEP = 30.0  # largest over median from which a line gets a logarithmic axis


def number(value: float | None) -> str:
    """Four significant digits, whole numbers whole: `0.0123`, `90,512`, `−2 × 10⁻⁶`."""
    if not value:
        return scientific(value)
    power = math.floor(math.log10(abs(value)))
    if not -4 <= power < 9:
        return scientific(value)
    text = fixed(value, max(3 - power, 0))
    return text.rstrip("0").rstrip(".") if "." in text else text


def histogram_plot(edges: Series, counts: npt.NDArray[np.int64], name: str) -> Markup:
    """Bars over the values; heights are log10 (1 + count), so that rare values show."""
    axis = nice_axis([float(edges[0]), float(edges[-1])])
    top = max(math.ceil(math.log10(1 + int(counts.max()))), 1)
    parts = _powers(top)
    for left, right, n in zip(edges[:-1], edges[1:], counts.tolist(), strict=True):
        if n:
            parts.append(_bin(axis, float(left), float(right), n, top))
    parts += _ticks(axis, HISTOGRAM)
    mode = int(counts.argmax())
    label = (
        f"Histogram of {name}: {count(int(counts.sum()))} values from "
        f"{number(float(edges[0]))} to {number(float(edges[-1]))}, most of them about "
        f"{number(float((edges[mode] + edges[mode + 1]) / 2))}"
    )
    return element("svg", *parts, height=HISTOGRAM, role="img", aria_label=label)


def _bin(axis: Axis, left: float, right: float, n: int, top: int) -> Markup:
    """A bar that says its bounds and count."""
    height = HISTOGRAM * math.log10(1 + n) / top
    begin, end = axis.share(left), axis.share(right)
    title = element("title", f"{number(left)} to {number(right)}: {count(n)}")
    return element("rect", title, class_="bin", x=_per_cent(begin), y=HISTOGRAM - height,
                   width=_per_cent(end - begin), height=height,
                   shape_rendering="crispEdges")  # fmt: skip


def _powers(top: int) -> list[Markup]:
    """Lines where a power of ten of values is reached, at most six."""
    parts = [_level(HISTOGRAM, "0", "ax")]
    for power in range(0, top + 1, max(1, -(-top // 5))):
        y = HISTOGRAM * (1 - math.log10(1 + 10**power) / top)
        if y >= -1:
            parts.append(_level(y, "1" if power == 0 else power_of_ten(power), "g"))
    return parts


def _level(y: float, label: str, look: str) -> Markup:
    line = element("line", class_=look, x1=0, x2="100%", y1=y, y2=y)
    return line + element("text", label, x=-8, y=y + 4, text_anchor="end")


def _ticks(axis: Axis, height: int) -> list[Markup]:
    return [
        element("text", number(tick), x=axis.at(tick), y=height + 17, text_anchor="middle")
        for tick in axis.ticks
    ]


def along_plot(what: str, values_R: Series, name: str) -> Markup:
    """A line over the positions; logarithmic where a few tower over the rest."""
    finite = values_R[np.isfinite(values_R)]
    if not finite.size:
        text = element("text", "nothing finite to draw", x=0, y=ALONG / 2)
        return element("svg", text, height=ALONG, role="img", aria_label=f"{name}: empty")
    positive = finite[finite > 0]
    is_log = bool(
        finite.min() >= 0 and positive.size and positive.max() > STEEP * np.median(positive)
    )
    drawn = _log10(values_R, float(positive.min())) if is_log else values_R
    axis = _y_axis(drawn, is_log=is_log)
    parts = []
    for i, tick in enumerate(axis.ticks):
        label = power_of_ten(round(tick)) if is_log else number(tick)
        y = ALONG * (1 - axis.share(tick))
        parts.append(_level(y, label, "g" if i else "ax"))
    parts.append(_line(drawn, axis))
    for i in range(5):
        at = round(i * (len(values_R) - 1) / 4)
        x = _per_cent(at / max(len(values_R) - 1, 1))
        parts.append(element("text", count(at), x=x, y=ALONG + 17, text_anchor="middle"))
    peak = int(np.argmax(np.where(np.isfinite(values_R), values_R, -np.inf)))
    label = (
        f"{what} of {name} over {count(len(values_R))} positions: from "
        f"{number(float(finite.min()))} to {number(float(finite.max()))}, largest at "
        f"position {count(peak)}"
    )
    return element("svg", *parts, height=ALONG, role="img", aria_label=label)


def _log10(values_R: Series, least: float) -> Series:
    """Zeros, which rows of padding are, have no logarithm: NaN."""
    return np.log10(np.where(values_R >= least, values_R, np.nan))


def _y_axis(drawn: Series, *, is_log: bool) -> Axis:
    finite = drawn[np.isfinite(drawn)]
    low, high = float(finite.min()), float(finite.max())
    if not is_log:
        return nice_axis([low, high], intervals=4)
    first, last = math.floor(low), max(math.ceil(high), math.floor(low) + 1)
    ticks = tuple(float(t) for t in range(first, last + 1, max(1, -(-(last - first) // 5))))
    return Axis(float(first), float(last), ticks)


def _line(values_R: Series, axis: Axis) -> Markup:
    """What is not finite leaves a gap; points that stand for several have a band."""
    each = max(1, -(-len(values_R) // POINTS))
    drawn: list[Markup] = []
    run: list[tuple[float, float, float, float]] = []  # x, mean, least, largest
    for begin in range(0, len(values_R), each):
        part = values_R[begin : begin + each]
        part = part[np.isfinite(part)]
        if part.size:
            middle = min(begin + (each - 1) / 2, len(values_R) - 1)
            x = 100 * middle / max(len(values_R) - 1, 1)
            run.append((x, float(part.mean()), float(part.min()), float(part.max())))
        else:
            drawn += _run(run, axis)
            run = []
    return element("svg", *drawn, *_run(run, axis), viewBox=f"0 0 100 {ALONG}",
                   width="100%", height=ALONG, preserveAspectRatio="none")  # fmt: skip


def _run(run: list[tuple[float, float, float, float]], axis: Axis) -> list[Markup]:
    """A band from least to largest and a line through the means; a lone point is a dash."""
    if not run:
        return []
    if len(run) == 1:
        run = [run[0], (run[0][0] + 0.2, *run[0][1:])]

    def along(which: int, order: int = 1) -> list[str]:
        places = ((one[0], ALONG * (1 - axis.share(one[which]))) for one in run[::order])
        return [f"{x:.2f},{y:.1f}" for x, y in places]

    outline = " ".join([*along(3), *along(2, -1)])
    return [
        element("polygon", class_="source-b", points=outline),
        element("polyline", class_="line fine", points=" ".join(along(1))),
    ]


def heat_plot(block: Block, outliers: tuple[Channel, ...], picture: str) -> Markup:
    """The PNG at `picture` in its axes; outlier channels are pointed at from above."""
    rows, columns = block.values_RC.shape
    parts = [
        element("image", href=picture, width="100%", height=HEAT,
                preserveAspectRatio="none", image_rendering="pixelated")
    ]  # fmt: skip
    for x in _apart([(one.channel + 0.5) / columns for one in outliers]):
        mark = element("path", d="M0 -1 4 -8h-8z", class_="source-m")
        parts.append(element("svg", mark, x=_per_cent(x), y=0, overflow="visible"))
    for i in range(5):
        at = i / 4
        x, y = round(at * (columns - 1)), round(at * (rows - 1))
        parts.append(element("text", count(x), x=_per_cent((x + 0.5) / columns),
                             y=HEAT + 17, text_anchor="middle"))  # fmt: skip
        parts.append(element("text", count(y), x=-8, y=HEAT * (y + 0.5) / rows + 4,
                             text_anchor="end"))  # fmt: skip
    said = ", ".join(f"{one.channel}" for one in outliers) or "none"
    label = f"Heat map, {rows} positions by {columns} channels; outlier channels: {said}"
    return element("svg", *parts, height=HEAT, role="img", aria_label=label)


def _apart(shares: list[float]) -> list[float]:
    """Places of which no two lie within half a per cent."""
    kept: list[float] = []
    for share in sorted(shares):
        if not kept or share - kept[-1] > 0.005:
            kept.append(share)
    return kept


def scale_key(scale: Scale, *, has_gaps: bool) -> Markup:
    """The colours from dark to light with the |values| at both ends."""
    width = 14
    swatches = [
        element(
            "rect", x=i * width, width=width, height=10, fill="rgb({},{},{})".format(*c)
        )
        for i, c in enumerate(CIVIDIS)
    ]
    bar = element("svg", *swatches, width=width * len(CIVIDIS), height=10,
                  aria_hidden="true")  # fmt: skip
    ends = [element("span", "|value| ", number(scale.bottom), bar, number(scale.top),
                    " and more")]  # fmt: skip
    if has_gaps:
        dot = element("rect", width=10, height=10, fill="rgb({},{},{})".format(*NOT_FINITE))
        mark = element("svg", dot, width=10, height=10, aria_hidden="true")
        ends.append(element("span", mark, "not finite"))
    return Markup("").join(ends)


def _per_cent(share: float) -> str:
    return f"{100 * share:.3f}%"
