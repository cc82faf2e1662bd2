"""Drafts held in a round and expected speed by depth, walked anew for each depth."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from conf.schema import Cost
from ui.contents import DraftName, Report, SetMeasure
from ui.figures import fixed, percent
from ui.page import pair
from ui.plots import Axis, element, marker, nice_axis
from ui.speed import expected_speed

HEIGHT = 220


@dataclass(frozen=True)
class DepthCurve:
    """Drafts held by depth 0…C with a 95 % band; `label` tells two of one draft apart."""

    draft: DraftName
    held: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    label: str = ""

    @property
    def who(self) -> str:
        """What it is called."""
        return self.label or self.draft

    def speed(self, verify: float, draft: float) -> "DepthCurve":
        """What that many drafts held are worth at these costs, `ui.speed`."""
        cost = Cost(verify=verify, draft=draft)
        held, low, high = (
            tuple(expected_speed(d, kept, cost) for d, kept in enumerate(line))
            for line in (self.held, self.low, self.high)
        )
        return DepthCurve(self.draft, held, low, high, self.label)

    @property
    def best(self) -> int:
        """The depth with the largest value."""
        return max(range(len(self.held)), key=lambda depth: self.held[depth])


def curves(report: Report) -> tuple[DepthCurve, ...]:
    """Stale and healed, as walked anew for each depth, where that was measured."""
    found = (curve_of(name, report.measures[name]) for name in pair(report))
    return tuple(curve for curve in found if curve is not None)


def curve_of(name: DraftName, measure: SetMeasure) -> DepthCurve | None:
    """A draft's curve; None where no depth was walked anew."""
    walked = sorted(measure.by_depth, key=lambda one: one.depth)
    walked = [one for one in walked if one.depth]
    if not walked:
        return None
    ends = [one.interval or (one.drafts_held, one.drafts_held) for one in walked]
    return DepthCurve(
        name,
        (0.0, *(one.drafts_held for one in walked)),
        (0.0, *(low for low, _ in ends)),
        (0.0, *(high for _, high in ends)),
    )


def shares(measure: SetMeasure) -> tuple[float, ...] | None:
    """Of rounds, by drafts held 0…C: reaching step j times breaking there."""
    rates = [rate.rate for rate in sorted(measure.hold_rates, key=lambda rate: rate.step)]
    found, reach = [], 1.0
    for rate in rates:
        if rate is None:
            return None
        found.append(reach * (1 - rate))
        reach *= rate
    return (*found, reach) if found else None


def rounds_plot(report: Report) -> Markup:
    """Bars beside each other, hollow stale and filled healed; a figure above each."""
    pairs = [(name, shares(report.measures[name])) for name in pair(report)]
    return bars_plot([(n, _fill(n), values) for n, values in pairs if values is not None])


def _fill(name: str) -> str:
    return "fs" if name == "stale" else "fh"


def bars_plot(drawn: Sequence[tuple[str, str, Sequence[float]]]) -> Markup:
    """Shares by drafts held, as named, each in the fill of its class."""
    if not drawn:
        return Markup("")
    axis = nice_axis(
        [100 * v for *_, values in drawn for v in values], zero=True, intervals=5
    )
    groups = max(len(values) for *_, values in drawn)
    parts = _grid(axis)
    for place, (_, fill, values) in enumerate(drawn):
        for held, value in enumerate(values):
            parts += _bar(fill, (held, groups), (place, len(drawn)), 100 * value, axis)
    for held in range(groups):
        at = f"{100 * (held + 0.5) / groups:.2f}%"
        parts.append(element("text", str(held), x=at, y=HEIGHT + 17, text_anchor="middle"))
    label = "; ".join(
        f"{name}: " + ", ".join(f"{percent(v, 0)} % hold {h}" for h, v in enumerate(values))
        for name, _, values in drawn
    )
    return element("svg", *parts, height=HEIGHT, role="img", aria_label=label)


def _bar(
    fill: str,
    group: tuple[int, int],
    place: tuple[int, int],
    value: float,
    axis: Axis,
) -> list[Markup]:
    step, wide = 100 / group[1], 100 / group[1] * 0.72 / place[1]
    x = group[0] * step + step * 0.14 + place[0] * wide
    y = HEIGHT * (1 - axis.share(value))
    box = element("rect", class_=fill, x=f"{x:.2f}%", width=f"{wide * 0.9:.2f}%", y=y,
                  height=HEIGHT - y)  # fmt: skip
    words = element("text", fixed(value, 0), class_="s" if fill == "fs" else "h",
                    x=f"{x + wide * 0.45:.2f}%", y=y - 5, text_anchor="middle")  # fmt: skip
    return [box, words]


def _grid(axis: Axis) -> list[Markup]:
    parts = []
    for i, tick in enumerate(axis.ticks):
        y = HEIGHT * (1 - axis.share(tick))
        parts.append(
            element("line", class_="g" if i else "ax", x1=0, x2="100%", y1=y, y2=y)
        )
        words = fixed(tick, axis.places)
        parts.append(element("text", words, x=-8, y=y + 4, text_anchor="end"))
    return parts


def speed_plot(
    drawn: Sequence[DepthCurve], verify: float, draft: float, *, is_live: bool = True
) -> Markup:
    """Expected speed by depth with its bands; a live one is redrawn as the sliders move."""
    fast = [curve.speed(verify, draft) for curve in drawn]
    ends = [v for curve in fast for v in (*curve.low, *curve.high)]
    axis = nice_axis([*ends, 0.5, max(ends) + 0.05], intervals=4)
    depth = max(len(curve.held) for curve in fast) - 1
    parts = [element("g", *_grid(axis), data_ticks="")]
    parts += [
        element(
            "text", str(d), x=f"{100 * d / depth:.2f}%", y=HEIGHT + 17, text_anchor="middle"
        )
        for d in range(depth + 1)
    ]
    one = HEIGHT * (1 - axis.share(1.0))
    plain = element("line", class_="ref", x1=0, x2="100%", y1=0, y2=0)
    words = element("text", "plain decoding", x="100%", y=16, text_anchor="end")
    parts.append(element("g", plain, words, data_one="", transform=f"translate(0 {one:g})"))
    for curve in fast:
        parts += _drawn(curve, axis, depth)
    told = ", ".join(
        f"{c.who} best {fixed(max(c.held))} times at depth {c.best}" for c in fast
    )
    data = json.dumps([
        {"who": c.who, "held": c.held, "low": c.low, "high": c.high} for c in drawn
    ])  # fmt: skip
    more = {"id": "speed", "data_curves": data} if is_live else {}
    return element("svg", *parts, **more, height=HEIGHT, role="img",
                   aria_label=f"Expected speed: {told}")  # fmt: skip


def _drawn(curve: DepthCurve, axis: Axis, last: int) -> list[Markup]:

    def places(values: Sequence[float]) -> list[str]:
        return [
            f"{100 * d / last:.2f},{HEIGHT * (1 - axis.share(v)):.1f}"
            for d, v in enumerate(values)
        ]

    short, who = "s" if curve.draft == "stale" else "h", curve.who
    dash = "5 4" if curve.label == "B" else "none"
    band = " ".join([*places(curve.high), *reversed(places(curve.low))])
    line = element(
        "svg",
        element("polygon", class_=f"b{short}", points=band, data_who=who),
        element("polyline", class_=f"l{short}", points=" ".join(places(curve.held)),
                data_who=who, stroke_dasharray=dash),
        viewBox=f"0 0 100 {HEIGHT}", width="100%", height=HEIGHT,
        preserveAspectRatio="none", overflow="visible",
    )  # fmt: skip
    dots = [
        _dot(curve, d / last, HEIGHT * (1 - axis.share(v)))
        for d, v in enumerate(curve.held)
    ]
    best = curve.best
    words = f"{curve.label} {fixed(curve.held[best])}× at {best}".strip()
    label = element("text", words, class_=short,
                    x=f"{100 * best / last:.2f}%",
                    y=HEIGHT * (1 - axis.share(curve.held[best])) - 14,
                    text_anchor="end" if best == last else "middle" if best else "start",
                    data_who=who)  # fmt: skip
    return [line, *dots, label]


def _dot(curve: DepthCurve, share: float, y: float) -> Markup:
    inner = marker(curve.draft, "0", 0, 0.9)
    return element(
        "svg", inner, x=f"{100 * share:.2f}%", y=y, overflow="visible", data_who=curve.who
    )
