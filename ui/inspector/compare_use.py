"""Two heals in use: shares of rounds, speed by depth, acceptance by temperature."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from markupsafe import Markup

from conf.schema import Cost
from ui.contents import Accepted, DepthHeld, DraftName, SetMeasure
from ui.inspector.compare_data import (
    Between,
    Comparison,
    Named,
    Row,
    Value,
    between,
    measured,
)
from ui.inspector.rounds import DepthCurve, bars_plot, curve_of, shares, speed_plot
from ui.inspector.sums import Interval, Pair, Sums, interval, rounds_drawn
from ui.speed import expected_speed

Tokens = Literal["drawn", "first"]
BOUND: dict[Tokens, int] = {"drawn": 0, "first": 2}


def round_rows(pair: Comparison) -> tuple[Row, ...]:
    """Shares of rounds from 0 to 1 by data set and draft; `step` is how many were held."""
    found: list[Row] = []
    for title, draft, one, two in measured(pair):
        paired = pair.pairing.of(title, draft)
        if paired is not None and not paired.is_as_deep:
            paired = None
        halves = paired.rounds() if paired else ()
        sums = (paired.a, paired.b) if paired else (None, None)
        sides = [_shares(named, of) for named, of in zip((one, two), sums, strict=True)]
        for held in range(max(len(side) for side in sides)):
            a, b = (side[held] if held < len(side) else None for side in sides)
            half = halves[held] if held < len(halves) else None
            found.append(Row(title, draft, held, a, b, between(a, b, half)))
    return tuple(found)


def _shares(named: Named, sums: Sums | None) -> tuple[Value, ...]:
    """Their intervals come from the sums by window: a report has none."""
    if named is None or (values := shares(named[1])) is None:
        return ()
    drawn = None if sums is None else rounds_drawn(sums)
    return tuple(
        Value(named[0], share, None if drawn is None else interval(drawn[:, held]),
              named[1].rows)
        for held, share in enumerate(values)
    )  # fmt: skip


def speed_rows(pair: Comparison, cost: Cost) -> tuple[Row, ...]:
    """Expected speed in plain decoding's by data set and draft; `step` is the depth."""
    found = []
    for title, draft, one, two in measured(pair):
        paired = pair.pairing.of(title, draft)
        sides = [_depths(named) for named in (one, two)]
        for depth in sorted(sides[0].keys() | sides[1].keys()):
            a, b = (
                _speed(n, s.get(depth), cost)
                for n, s in zip((one, two), sides, strict=True)
            )
            found.append(
                Row(title, draft, depth, a, b,
                    between(a, b, _half_speed(paired, depth, cost)))
            )  # fmt: skip
    return tuple(found)


def _depths(named: Named) -> dict[int, DepthHeld]:
    walks = () if named is None else named[1].by_depth
    return {one.depth: one for one in walks if one.depth}


def _speed(named: Named, one: DepthHeld | None, cost: Cost) -> Value | None:
    if named is None or one is None:
        return None
    ends = one.interval
    fast = (
        None
        if ends is None
        else (
            expected_speed(one.depth, ends[0], cost),
            expected_speed(one.depth, ends[1], cost),
        )
    )
    speed = expected_speed(one.depth, one.drafts_held, cost)
    return Value(named[0], speed, fast, one.rows)


def _half_speed(paired: Pair | None, depth: int, cost: Cost) -> float | None:
    """Speed is linear in drafts held: their interval over what the round costs."""
    if paired is None or depth > min(paired.a.depth, paired.b.depth):
        return None
    return paired.held(depth) / (cost.verify + depth * cost.draft)


@dataclass(frozen=True)
class Bounded:
    """An acceptance from 0 to 1: bounds that a kept top-k leaves, and the interval."""

    low: float
    high: float
    interval: Interval


@dataclass(frozen=True)
class SampledRow:
    """Acceptance of a step at a temperature, of both sides and B − A.

    `tokens`: the draft's are drawn from its distribution, or always its first.
    """

    title: str
    draft: str
    temperature: float
    step: int
    tokens: Tokens
    a: Bounded | None
    b: Bounded | None
    between: Bounded | None
    is_paired: bool


def sampled_rows(pair: Comparison) -> Iterator[SampledRow]:
    """By data set, draft, temperature, step and whose tokens."""
    for title, draft, one, two in measured(pair):
        paired = pair.pairing.of(title, draft)
        sides = [_accepted(named) for named in (one, two)]
        for temperature, step in sorted(sides[0].keys() | sides[1].keys()):
            for tokens in get_args(Tokens):
                a, b = (_bounded(s.get((temperature, step)), tokens) for s in sides)
                found = _paired(pair, paired, temperature, step, tokens)
                gap = _apart(a, b, found)
                yield SampledRow(
                    title, draft, temperature, step, tokens, a, b, gap,
                    gap is not None and found is not None,
                )  # fmt: skip


def _accepted(named: Named) -> dict[tuple[float, int], Accepted]:
    sampling = () if named is None else named[1].sampling
    return {(at.temperature, one.step): one for at in sampling for one in at.steps}


def _bounded(one: Accepted | None, tokens: Tokens) -> Bounded | None:
    if one is None:
        return None
    is_drawn = tokens == "drawn"
    bounds = one.sampled if is_drawn else one.greedy
    ends = one.sampled_interval if is_drawn else one.greedy_interval
    return None if bounds is None or ends is None else Bounded(*bounds, ends)


def _paired(
    pair: Comparison, paired: Pair | None, temperature: float, step: int, tokens: Tokens
) -> Interval | None:
    at = [side.index(temperature) if temperature in side else None
          for side in pair.pairing.temperatures]  # fmt: skip
    if paired is None or at[0] is None or at[1] is None:
        return None
    if step > min(paired.a.depth, paired.b.depth):
        return None
    return paired.accepted((at[0], at[1]), step, BOUND[tokens])


def _apart(a: Bounded | None, b: Bounded | None, found: Interval | None) -> Bounded | None:
    """B − A: from the least to the most it can be; unpaired, variances add at each end."""
    if a is None or b is None:
        return None
    low, high = b.low - a.high, b.high - a.low
    if found is None:
        below = math.hypot(b.low - b.interval[0], a.interval[1] - a.high)
        above = math.hypot(b.interval[1] - b.high, a.low - a.interval[0])
        found = (low - below, high + above)
    return Bounded(low, high, found)


def use_plots(pair: Comparison, cost: Cost) -> dict[str, Markup]:
    """Rounds and speed of the healed drafts of two, or of one's stale and healed."""
    named = _drawn(pair)
    bars = [
        (who, _fill(who, draft), values)
        for who, draft, measure in named
        if (values := shares(measure)) is not None
    ]
    lines = [
        DepthCurve(draft, c.held, c.low, c.high, "" if who == draft else who)
        for who, draft, measure in named
        if (c := curve_of(draft, measure)) is not None
    ]
    return {
        "rounds": bars_plot(bars),
        "speed": speed_plot(lines, cost.verify, cost.draft, is_live=False)
        if lines
        else Markup(""),
    }


def _drawn(pair: Comparison) -> list[tuple[str, DraftName, SetMeasure]]:
    """Of the first data set, who is drawn: its name, draft and measure."""
    for _, draft, one, two in measured(pair):
        if draft in ("", "healed") and one is not None and two is not None:
            return [(pair.names[0], *one), (pair.names[1], *two)]
    return []


def _fill(who: str, draft: DraftName) -> str:
    if draft == "stale":
        return "fs"
    return "fh other" if who == "B" else "fh"


def is_clear(found: Between | Bounded | None) -> bool:
    """Whether the interval of a difference leaves zero out."""
    if isinstance(found, Bounded):
        return found.interval[0] > 0 or found.interval[1] < 0
    return found is not None and found.is_clear
