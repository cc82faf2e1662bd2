"""Two heals, or one before and after, as rows of two values and what lies between them."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import yaml
from pydantic import JsonValue

from store.nearest import flat_settings
from ui.contents import DRAFTS, DraftName, Rate, Report, SetMeasure
from ui.figures import digest
from ui.inspector.heal_list import Heal
from ui.inspector.pairing import Pairing
from ui.page import on_sets

ABSENT_SETTING = "unset"


@dataclass(frozen=True)
class Value:
    """A figure with its 95 % interval, if it has one, and the rows under it."""

    draft: DraftName
    value: float
    interval: tuple[float, float] | None
    rows: int

    @property
    def half_width(self) -> float | None:
        """Half of the interval."""
        return None if self.interval is None else (self.interval[1] - self.interval[0]) / 2


@dataclass(frozen=True)
class Between:
    """B − A; `half_width` at 95 %, None where a side has no interval."""

    value: float
    half_width: float | None
    is_paired: bool

    @property
    def is_clear(self) -> bool:
        """Whether its interval leaves zero out."""
        return self.half_width is not None and abs(self.value) > self.half_width


@dataclass(frozen=True)
class Row:
    """A figure of both sides on one data set; `step` 0 is that of the whole round."""

    title: str
    draft: str
    step: int
    a: Value | None
    b: Value | None
    between: Between | None


@dataclass(frozen=True)
class Comparison:
    """A and B; of one heal they are the same, and its stale and healed drafts compared."""

    a: Heal
    b: Heal
    pairing: Pairing = field(default_factory=Pairing)

    @property
    def is_one(self) -> bool:
        """Whether this is the before and after of one heal."""
        return self.a.id == self.b.id

    @property
    def names(self) -> tuple[str, str]:
        """What the two columns are called."""
        return ("stale", "healed") if self.is_one else ("A", "B")

    @property
    def reports(self) -> tuple[Report, Report] | None:
        """Both, if both are there."""
        a, b = self.a.report, self.b.report
        return None if a is None or b is None else (a, b)


def held_rows(pair: Comparison) -> tuple[Row, ...]:
    """Drafts held by data set and draft, those of all data first."""
    return tuple(
        Row(title, draft, 0, a := _held(one), b := _held(two),
            _gain(pair, title) if pair.is_one
            else between(a, b, _half_held(pair, title, draft)))
        for title, draft, one, two in measured(pair)
    )  # fmt: skip


def _half_held(pair: Comparison, title: str, draft: str) -> float | None:
    """Rounds of different depths do not pair."""
    found = pair.pairing.of(title, draft)
    return found.held(found.a.depth) if found is not None and found.is_as_deep else None


def rate_rows(pair: Comparison) -> tuple[Row, ...]:
    """Hold rates from 0 to 1 by data set, draft and chain step."""
    found = []
    for title, draft, one, two in measured(pair):
        rates_a, rates_b = _rates(one), _rates(two)
        paired = pair.pairing.of(title, draft)
        halves = {} if paired is None else dict(enumerate(paired.rates(), start=1))
        for step in sorted(rates_a.keys() | rates_b.keys()):
            a, b = rates_a.get(step), rates_b.get(step)
            found.append(Row(title, draft, step, a, b, between(a, b, halves.get(step))))
    return tuple(found)


Named = tuple[DraftName, SetMeasure] | None


def measured(pair: Comparison) -> Iterator[tuple[str, str, Named, Named]]:
    """By data set (and draft): the measure of either side."""
    if pair.reports is None:
        only = pair.a.report or pair.b.report
        sets = [] if only is None else on_sets(only)
        sides = (dict(sets), {}) if pair.a.report else ({}, dict(sets))
    else:
        sides = (dict(on_sets(pair.reports[0])), dict(on_sets(pair.reports[1])))
    for title in dict.fromkeys([*sides[0], *sides[1]]):
        a, b = sides[0].get(title, {}), sides[1].get(title, {})
        if pair.is_one:
            yield title, "", _of(a, "stale"), _of(b, "healed")
            continue
        for draft in DRAFTS:
            if draft in a or draft in b:
                yield title, draft, _of(a, draft), _of(b, draft)


def _of(measures: dict[DraftName, SetMeasure], draft: DraftName) -> Named:
    return (draft, measures[draft]) if draft in measures else None


def _held(named: Named) -> Value | None:
    if named is None:
        return None
    draft, measure = named
    return Value(draft, measure.drafts_held, measure.interval, measure.rows)


def _rates(named: Named) -> dict[int, Value]:
    if named is None:
        return {}
    draft, measure = named
    return {
        rate.step: Value(draft, rate.rate, _ends(rate), rate.rows)
        for rate in measure.hold_rates
        if rate.rate is not None
    }


def _ends(rate: Rate) -> tuple[float, float] | None:
    return None if rate.lo is None or rate.hi is None else (rate.lo, rate.hi)


def _gain(pair: Comparison, title: str) -> Between | None:
    """What the heal's own report says, paired over windows."""
    report = pair.a.report
    assert report is not None, "a row came from it"
    is_whole = title == on_sets(report)[0][0]
    gain = report.gain if is_whole else report.gain_by_set.get(title)
    return None if gain is None else Between(gain.value, gain.half_width, is_paired=True)


def between(
    a: Value | None, b: Value | None, paired: float | None = None
) -> Between | None:
    """B − A with its paired half width; else as of independent rows: variances add."""
    if a is None or b is None:
        return None
    if paired is not None:
        return Between(b.value - a.value, paired, is_paired=True)
    halves = (a.half_width, b.half_width)
    known = [half for half in halves if half is not None]
    half = math.hypot(*known) if len(known) == 2 else None
    return Between(b.value - a.value, half, is_paired=False)


def caveats(pair: Comparison) -> tuple[str, ...]:
    """Why the figures of two heals may not compare."""
    if pair.is_one or pair.reports is None:
        return ()
    a, b = pair.reports
    found = []
    if a.depth != b.depth:
        found.append(
            f"Rounds of {a.depth} drafts in A, of {b.depth} in B: drafts held do not "
            "compare; the hold rates of the steps both have do."
        )
    names: tuple[tuple[str, Literal["data", "trunk", "window"]], ...] = (
        ("Their data differ: each was measured on its own held-out text.", "data"),
        ("Their trunks differ: a draft is held by its own trunk.", "trunk"),
        ("Their windows differ in length, and with them what a chain can see.", "window"),
    )
    found += [text for text, key in names if a.provenance.get(key) != b.provenance.get(key)]
    return tuple(found)


@dataclass(frozen=True)
class SettingRow:
    """A setting that differs, as each configuration has it."""

    name: str
    a: str
    b: str


def setting_rows(pair: Comparison) -> tuple[tuple[SettingRow, ...], int]:
    """Settings that differ, and how many do not."""
    a, b = (_settings(heal.config) for heal in (pair.a, pair.b))
    names = list(dict.fromkeys([*a, *b]))
    rows = tuple(
        SettingRow(name, *(_spelled(side, name) for side in (a, b)))
        for name in names
        if name not in a or name not in b or a[name] != b[name]
    )
    return rows, len(names) - len(rows)


def _spelled(settings: dict[str, JsonValue], name: str) -> str:
    if name not in settings:
        return ABSENT_SETTING
    value = settings[name]
    if isinstance(value, str):
        return digest(value)
    return json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)


def _settings(config: str) -> dict[str, JsonValue]:
    """A configuration by dotted name; none of what is no YAML, or refers to itself."""
    try:
        events = yaml.parse(config, yaml.SafeLoader)
        if any(isinstance(event, yaml.AliasEvent) for event in events):
            return {}
        said = yaml.safe_load(config)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return flat_settings(said) if isinstance(said, dict) else {}
