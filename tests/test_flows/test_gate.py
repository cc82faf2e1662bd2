"""The gate on a report whose figures are known by hand."""

from collections.abc import Mapping

import pytest

from conf.demo import Gate
from conf.errors import ConfigError
from flows.gate import Check, check_gate
from tests.test_ui.sample import measure, sample_report

# Drafts held by the walk on code and prose; by starts each holds 0.11 more.
MEASURES = {
    "source": measure(2.0, 1.9, coverage=0.41),  # 0.38 on prose
    "stale": measure(1.0, 1.3, coverage=0.21),
    "healed": measure(1.9, 1.9),
    "control": measure(0.9, 1.2),
    "fresh": measure(1.9, 1.4),
}


def checks(gate: Gate, *others: Mapping[str, object]) -> dict[str, Check]:
    reports = [sample_report(measures=m) for m in (MEASURES, *others)]
    return {check.what: check for check in check_gate(gate, reports)}


def gate(**changes: object) -> Gate:
    raw = {"healed_over_stale": 0.5, "healed_over_control": 0.5, "by": "walk"}
    return Gate.model_validate(raw | changes)


def test_every_promise_is_checked_on_every_set() -> None:
    found = checks(
        gate(
            coverage=0.2,
            source_over_stale=0.6,
            source_over_healed=0.2,
            healed_over_fresh=0.0,
        )
    )
    assert {what: round(check.found, 9) for what, check in found.items()} == {
        "code: coverage on the source's trunk": 0.41,
        "code: coverage on the stale's trunk": 0.21,
        "code: source − stale": 1.0,
        "code: healed − stale": 0.9,
        "code: healed − control": 1.0,
        "code: healed − source": -0.1,
        "code: healed − fresh": 0.0,
        "prose: coverage on the source's trunk": 0.38,
        "prose: coverage on the stale's trunk": 0.18,
        "prose: source − stale": 0.6,
        "prose: healed − stale": 0.6,
        "prose: healed − control": 0.7,
        "prose: healed − source": 0.0,
        "prose: healed − fresh": 0.5,
    }
    missed = {what for what, check in found.items() if not check.is_met}
    assert missed >= {"code: healed − fresh", "prose: coverage on the stale's trunk"}


def test_a_strict_promise_is_not_met_by_equality() -> None:
    assert Check("a", 0.5, 0.5).is_met
    assert not Check("a", 0.5, 0.5, is_strict=True).is_met
    assert not Check("a", 0.49, 0.5).is_met


def test_what_is_not_promised_is_not_checked() -> None:
    assert checks(gate()).keys() == {
        "code: healed − stale",
        "code: healed − control",
        "prose: healed − stale",
        "prose: healed − control",
    }


def test_seeds_are_averaged_and_starts_can_decide() -> None:
    other = MEASURES | {"healed": measure(1.5, 1.9), "stale": measure(1.2, 1.3)}
    by_walk = checks(gate(), other)["code: healed − stale"]
    assert by_walk.found == pytest.approx((0.9 + 0.3) / 2)
    by_starts = checks(gate(by="starts"), other)["code: healed − stale"]
    assert by_starts.found == pytest.approx((0.9 + 0.3) / 2)


def test_a_set_that_one_draft_was_not_measured_on_is_named() -> None:
    healed = MEASURES["healed"]
    less = healed.model_copy(update={"by_set": {"code": healed.by_set["code"]}})
    report = sample_report(measures=MEASURES | {"healed": less})
    with pytest.raises(ConfigError, match="data set prose: the healed draft"):
        check_gate(gate(), [report])
