"""The page's first sections, figures spelled, plots drawn: drafts and their chains."""

from dataclasses import dataclass

from markupsafe import Markup

from conf.schema import StartKind
from ui.contents import DraftName, Rate, Report, SetMeasure
from ui.figures import count, fixed, percent, percent_sign, span, with_error
from ui.plots import Axis, Mark, headline, nice_axis, scale, strip

MEANINGS: dict[DraftName, str] = {
    "source": "on its own trunk, before the change",
    "stale": "the same draft on the changed trunk",
    "healed": "retrained on the changed trunk",
    "control": "same steps, spent on the source trunk",
    "fresh": "a new draft, same steps",
}
STARTS: dict[StartKind, str] = {
    "own": MEANINGS["stale"],
    "init": "another model's draft on this trunk",
    "fresh": "a new draft from the trunk's last layer, untrained",
}
ALL = "all data"


def meanings(report: Report) -> dict[DraftName, str]:
    """What each draft of this report is, in a few words."""
    known = MEANINGS | {"stale": STARTS[report.start]}
    return {name: known[name] for name in report.drafts}


@dataclass(frozen=True)
class DraftLine:
    """A draft on one set: its plot and its figures."""

    name: DraftName
    meaning: str
    strip: Markup
    held: str
    interval: str
    starts: str
    rows: str
    coverage: str


@dataclass(frozen=True)
class DraftGroup:
    """All drafts on one set of windows, with the gain there."""

    title: str
    windows: str
    gain: str
    lines: tuple[DraftLine, ...]


@dataclass(frozen=True)
class DraftTable:
    """Drafts held, groups under one axis."""

    groups: tuple[DraftGroup, ...]
    scale: Markup


@dataclass(frozen=True)
class StepLine:
    """A chain step: stale and healed (or the one draft there is) with what they rest on."""

    step: int
    strip: Markup
    rates: tuple[tuple[DraftName, str], ...]
    rows: str


@dataclass(frozen=True)
class StepBlock:
    """The chain of one set of windows."""

    title: str
    held: tuple[tuple[DraftName, str], ...]
    note: str
    lines: tuple[StepLine, ...]
    scale: Markup


@dataclass(frozen=True)
class RateLine:
    """A row of the table behind the chain plots."""

    where: str
    draft: DraftName
    step: int
    rate: str
    interval: str
    running: str
    rows: str


def on_sets(report: Report) -> list[tuple[str, dict[DraftName, SetMeasure]]]:
    """The measures of all data, then of each data set; one set alone is not told twice."""
    whole: dict[DraftName, SetMeasure] = {
        name: report.measures[name] for name in report.drafts
    }
    names = report.set_names
    if len(names) == 1:
        return [(names[0], whole)]
    parts = [
        (name, {draft: report.measures[draft].by_set[name]
                for draft in report.drafts if name in report.measures[draft].by_set})
        for name in names
    ]  # fmt: skip
    return [(ALL, whole), *parts]


def pair(report: Report) -> tuple[DraftName, ...]:
    """Stale and healed, or the last draft measured where there is no such pair."""
    names = tuple(name for name in report.drafts if name in ("stale", "healed"))
    return names or report.drafts[-1:]


def tokens_a_round(report: Report) -> str:
    """With the trunk's own token, of the drafts compared: `stale 1.32, healed 2.05`."""
    held = {name: report.measures[name].drafts_held for name in pair(report)}
    return ", ".join(f"{name} {fixed(1 + value)}" for name, value in held.items())


def hero(report: Report) -> Markup:
    """The headline figure."""
    names = pair(report)
    measures = [(name, report.measures[name]) for name in names]
    marks = [
        Mark(name, measure.drafts_held, measure.interval) for name, measure in measures
    ]
    whole = report.measures.get("source")
    source = None if whole is None or "source" in names else whole.drafts_held
    said = [f"{mark.draft} {fixed(mark.value)}" for mark in marks]
    if source is not None:
        said.append(f"source {fixed(source)}")
    stride = 1 if report.depth <= 8 else 2
    ticks = tuple(float(tick) for tick in range(0, report.depth + 1, stride))
    label = f"{', '.join(said)} of {report.depth} drafts held per round"
    return headline(Axis(0.0, float(report.depth), ticks), marks, source, label)


def draft_table(report: Report) -> DraftTable:
    """Every draft on every set; rows share one axis, since they are compared."""
    sets = on_sets(report)
    ends = [
        end
        for _, by_draft in sets
        for m in by_draft.values()
        for end in (m.drafts_held, *(m.interval or ()))
    ]
    axis = nice_axis(ends, zero=True)
    groups = tuple(_draft_group(report, title, by_draft, axis) for title, by_draft in sets)
    return DraftTable(groups, scale(axis, lambda tick: fixed(tick, axis.places)))


def _draft_group(
    report: Report, title: str, by_draft: dict[DraftName, SetMeasure], axis: Axis
) -> DraftGroup:
    windows = next((m.windows for m in by_draft.values() if m.windows is not None), None)
    whole = title == ALL or len(report.set_names) == 1
    gain = report.gain if whole else report.gain_by_set.get(title)
    lines = tuple(
        _draft_line(report, title, name, measure, axis)
        for name, measure in by_draft.items()
    )
    return DraftGroup(
        title=title,
        windows="" if windows is None else f"{windows:,} windows",
        gain="" if gain is None else with_error(gain.value, gain.half_width),
        lines=lines,
    )


def _draft_line(
    report: Report, title: str, name: DraftName, measure: SetMeasure, axis: Axis
) -> DraftLine:
    interval = span(measure.interval)
    label = f"{title}, {name}: {fixed(measure.drafts_held)} drafts held, 95 % {interval}"
    return DraftLine(
        name=name,
        meaning=meanings(report)[name],
        strip=strip(axis, [Mark(name, measure.drafts_held, measure.interval)], label),
        held=fixed(measure.drafts_held),
        interval=interval,
        starts=fixed(measure.drafts_held_starts),
        rows=count(measure.rows),
        coverage=percent(measure.coverage),
    )


def step_blocks(report: Report) -> tuple[StepBlock, ...]:
    """The chain of all data, then of each data set, on one axis."""
    names = pair(report)
    sets = [
        (title, {name: by_draft[name] for name in names if name in by_draft})
        for title, by_draft in on_sets(report)
    ]
    rates = [
        rate for _, by_draft in sets for m in by_draft.values() for rate in m.hold_rates
    ]
    if not rates:
        return ()
    ends = [
        100 * end
        for rate in rates
        for end in (rate.rate, rate.lo, rate.hi)
        if end is not None
    ]
    axis = nice_axis(ends, intervals=5)
    return tuple(_step_block(title, by_draft, axis) for title, by_draft in sets if by_draft)


def _step_block(title: str, by_draft: dict[DraftName, SetMeasure], axis: Axis) -> StepBlock:
    by_step: dict[int, dict[DraftName, Rate]] = {}
    for name, measure in by_draft.items():
        for rate in measure.hold_rates:
            by_step.setdefault(rate.step, {})[name] = rate
    height = 26 if title == ALL else 20
    return StepBlock(
        title=title,
        held=tuple(
            (name, fixed(measure.drafts_held)) for name, measure in by_draft.items()
        ),
        note=_ground(by_draft),
        lines=tuple(
            _step_line(title, step, by_step[step], axis, height) for step in sorted(by_step)
        ),
        scale=scale(axis, lambda tick: fixed(tick, axis.places)),
    )


def _ground(by_draft: dict[DraftName, SetMeasure]) -> str:
    last = list(by_draft.values())[-1]
    parts = [] if last.windows is None else [f"{last.windows:,} windows"]
    if last.coverage is not None:
        parts.append(f"coverage {percent_sign(last.coverage)}")
    return ", ".join(parts)


def _step_line(
    title: str, step: int, rates: dict[DraftName, Rate], axis: Axis, height: int
) -> StepLine:
    marks = [
        Mark(name, 100 * rate.rate, _hundred(rate))
        for name, rate in rates.items()
        if rate.rate is not None
    ]
    told = tuple((name, percent(rate.rate)) for name, rate in rates.items())
    label = f"{title}, step {step}: " + ", ".join(f"{name} {text} %" for name, text in told)
    rows = " → ".join(count(rate.rows) for rate in rates.values())
    return StepLine(step, strip(axis, marks, label, height), told, rows)


def _hundred(rate: Rate) -> tuple[float, float] | None:
    return None if rate.lo is None or rate.hi is None else (100 * rate.lo, 100 * rate.hi)


def rate_lines(report: Report) -> tuple[RateLine, ...]:
    """Every hold rate of every draft, for the table behind the plots."""
    return tuple(
        RateLine(
            where=title,
            draft=name,
            step=rate.step,
            rate=percent(rate.rate),
            interval=span(_hundred(rate), places=1),
            running=percent(rate.running),
            rows=count(rate.rows),
        )
        for title, by_draft in on_sets(report)
        for name, measure in by_draft.items()
        for rate in measure.hold_rates
    )
