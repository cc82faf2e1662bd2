"""Expected speed by depth: what the drafts held are worth at the user's costs.

`(1 + D_d) / (verify + d · draft)` in units of plain decoding, D_d walked anew for each
depth d; depth 0 drafts nothing and has speed 1 (healing.md §7).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

from conf.schema import Cost
from ui.contents import DepthHeld, DraftName, Report
from ui.figures import count, fixed
from ui.page import pair
from ui.plots import Axis, Mark, nice_axis, scale, strip

Named = tuple[tuple[DraftName, str], ...]


@dataclass(frozen=True)
class SpeedLine:
    """A depth: stale and healed (or the one draft there is), and rounds by the walk."""

    depth: int
    strip: Markup
    speeds: Named
    held: Named
    rows: str


@dataclass(frozen=True)
class SpeedTable:
    """Every depth of the drafts compared, on one axis; where the last one peaks."""

    said: str
    costs: str
    lines: tuple[SpeedLine, ...]
    scale: Markup


def expected_speed(depth: int, drafts_held: float, cost: Cost) -> float:
    """Tokens a round over what the round costs, in plain decode steps; 1 at depth 0."""
    return 1.0 if depth == 0 else (1.0 + drafts_held) / (cost.verify + depth * cost.draft)


def best_depth(held: tuple[DepthHeld, ...], cost: Cost) -> DepthHeld:
    """The depth of the highest speed; of equal ones the shallowest."""
    return max(held, key=lambda one: expected_speed(one.depth, one.drafts_held, cost))


def speed_table(report: Report) -> SpeedTable | None:
    """The depths of stale and healed, or of the one draft there is; None if unmeasured."""
    held = {
        name: report.measures[name].by_depth
        for name in pair(report)
        if report.measures[name].by_depth
    }
    if not held:
        return None
    cost = report.cost
    marks = {name: [_mark(name, one, cost) for one in ones] for name, ones in held.items()}
    axis = nice_axis(
        [end for of in marks.values() for m in of for end in (m.value, *(m.interval or ()))]
    )
    lines = tuple(
        _line({name: ones[depth] for name, ones in held.items()},
              [of[depth] for of in marks.values()], axis)
        for depth in range(report.depth + 1)
    )  # fmt: skip
    return SpeedTable(
        _said(*list(held.items())[-1], cost),
        _costs(report),
        lines,
        scale(axis, lambda tick: fixed(tick, axis.places)),
    )


def _costs(report: Report) -> str:
    """Whose they are: as given, or how, where and when they were timed."""
    cost, timing = report.cost, report.timing
    if timing is None:
        return f"verify {cost.verify:g}, draft {cost.draft:g}; set measure.cost"
    parts = ", ".join(
        f"{name} {getattr(cost, name):g} ({low:.2f}–{high:.2f})"
        for name, (low, high) in timing.quartiles.items()
    )
    threads = f"{timing.threads} thread{'' if timing.threads == 1 else 's'}"
    return (
        f"{parts}: median and quartiles of {timing.rounds} rounds of {timing.depth} drafts "
        f"behind {timing.context} tokens, a plain step taking "
        f"{1000 * timing.seconds['plain']:.3g} ms; timed on {timing.machine}, "
        f"{timing.device}, {threads}, {timing.dtype}, {timing.when:%Y-%m-%d}"
    )


def _said(name: DraftName, held: tuple[DepthHeld, ...], cost: Cost) -> str:
    best = best_depth(held, cost)
    if best.depth == 0:
        return f"At these costs no depth of {name} is faster than plain decoding."
    speed = fixed(expected_speed(best.depth, best.drafts_held, cost))
    return (
        f"At these costs {name} is fastest drafting {best.depth} a round: {speed} times "
        "plain decoding."
    )


def _mark(name: DraftName, one: DepthHeld, cost: Cost) -> Mark:
    speed = expected_speed(one.depth, one.drafts_held, cost)
    if one.interval is None or one.depth == 0:
        return Mark(name, speed)
    low, high = (expected_speed(one.depth, end, cost) for end in one.interval)
    return Mark(name, speed, (low, high))


def _line(held: Mapping[DraftName, DepthHeld], marks: list[Mark], axis: Axis) -> SpeedLine:
    depth = next(iter(held.values())).depth
    speeds = tuple((mark.draft, fixed(mark.value)) for mark in marks)
    label = f"Depth {depth}: " + ", ".join(f"{name} {text}" for name, text in speeds)
    rows = " → ".join(count(one.rows) for one in held.values()) if depth else ""
    return SpeedLine(
        depth,
        strip(axis, marks, label, 20),
        speeds,
        tuple((name, fixed(one.drafts_held)) for name, one in held.items()),
        rows,
    )
