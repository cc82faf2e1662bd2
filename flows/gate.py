"""What a demonstration promised to show, and whether it did."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from conf.demo import Gate
from conf.errors import ConfigError
from ui.contents import Report, SetMeasure


@dataclass(frozen=True)
class Check:
    """One promise: its words, what was found (a mean over seeds), the least it must be."""

    what: str
    found: float
    least: float
    is_strict: bool = False

    @property
    def is_met(self) -> bool:
        """True if what was found is at least (or, if strict, above) what was promised."""
        return self.found > self.least if self.is_strict else self.found >= self.least

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "what": self.what,
            "found": self.found,
            "least": self.least,
            "met": self.is_met,
        }


def check_gate(gate: Gate, reports: Sequence[Report]) -> list[Check]:
    """Every promise on every data set; several seeds are averaged."""
    return [
        check for name in reports[0].set_names for check in _set_checks(gate, reports, name)
    ]


def _set_checks(gate: Gate, reports: Sequence[Report], name: str) -> Iterator[Check]:
    def held(draft: str) -> float:
        return fmean(_drafts_held(_of(report, draft, name), gate.by) for report in reports)

    def over(better: str, worse: str) -> tuple[str, float]:
        return f"{name}: {better} − {worse}", held(better) - held(worse)

    if gate.coverage is not None:
        for draft in ("source", "stale"):
            coverage = fmean(_of(report, draft, name).coverage or 0.0 for report in reports)
            yield Check(f"{name}: coverage on the {draft}'s trunk", coverage, gate.coverage)
    if gate.source_over_stale is not None:
        yield Check(*over("source", "stale"), gate.source_over_stale)
    yield Check(*over("healed", "stale"), gate.healed_over_stale)
    yield Check(*over("healed", "control"), gate.healed_over_control)
    if gate.source_over_healed is not None:
        yield Check(*over("healed", "source"), -gate.source_over_healed)
    if gate.healed_over_fresh is not None:
        yield Check(*over("healed", "fresh"), gate.healed_over_fresh, is_strict=True)


def _of(report: Report, draft: str, name: str) -> SetMeasure:
    by_set = report.measures[draft].by_set  # type: ignore[index]  # a str of the literal
    if name not in by_set:
        raise ConfigError(
            f"data set {name}: the {draft} draft has no held-out window of it, so what the "
            "demonstration promises can't be checked there; give it more tokens"
        )
    return by_set[name]


def _drafts_held(measure: SetMeasure, by: Literal["walk", "starts"]) -> float:
    if by == "walk":
        return measure.drafts_held
    assert measure.drafts_held_starts is not None
    return measure.drafts_held_starts
