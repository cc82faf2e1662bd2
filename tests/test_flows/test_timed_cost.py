"""`measure.cost: timed`: timed once a machine, told by the report, in no measure's key."""

import numpy as np
import pytest

import tasks.time_decode as stage
from conf.load import check
from conf.schema import RunConfig
from flows.plan import plan_heal
from nets.decode_times import RoundTimes
from tasks.packed import Packed
from tasks.time_decode import text_of
from tests.small_heal import Ground, heal


def test_costs_are_medians_of_the_rounds_own_ratios(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second round was disturbed as a whole, the third in its verify alone.
    rounds = (
        RoundTimes(plain=0.010, verify=0.012, draft=0.001),
        RoundTimes(plain=0.100, verify=0.130, draft=0.020),
        RoundTimes(plain=0.010, verify=0.090, draft=0.003),
    )
    monkeypatch.setattr("nets.decode_times.time_rounds", lambda *_: rounds)
    found = heal(ground.config(measure={"cost": "timed"}), ground.store)
    assert found.made == ["time_decode", "report"]
    report = found.files.report
    assert report.cost.verify == pytest.approx(1.3)
    assert report.cost.draft == pytest.approx(0.2)
    assert report.timing is not None
    assert report.timing.seconds == pytest.approx(
        {"plain": 0.010, "verify": 0.090, "draft": 0.003}
    )
    assert report.timing.quartiles["draft"] == pytest.approx((0.15, 0.25))
    assert report.timing.threads == found.runtime.threads
    assert "timed on" in found.files.page.read_text()


def test_it_is_timed_once_a_machine_and_never_with_given_costs(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = ground.config(measure={"cost": "timed"})
    first = heal(raw, ground.store)
    assert first.files.report.cost.verify > 0
    assert first.files.report.timing is not None
    assert heal(raw, ground.store).made == []
    config = check(RunConfig, raw, "small")
    assert not plan_heal(config, "heal run small.yaml", ground.store).missing
    monkeypatch.setattr(stage, "this_machine", lambda: "another processor, 64 cores")
    other = heal(raw, ground.store)
    assert other.made == ["time_decode", "report"]
    assert other.files.report.timing is not None
    assert other.files.report.timing.machine == "another processor, 64 cores"
    given = heal(ground.config(measure={"cost": {"verify": 1.5}}), ground.store)
    assert given.made == ["report"]
    assert (given.files.report.cost.verify, given.files.report.timing) == (1.5, None)


def test_the_text_is_the_windows_real_tokens_in_order() -> None:
    ids = np.array([[1, 2, 3, 0], [4, 5, 0, 0]], np.uint32)
    none = np.zeros(2, np.int64)
    length, record = np.array([3, 2]), ids.astype(np.int64)
    packed = Packed(ids, length, none, none.astype(bool), record, ("a",))
    assert text_of(packed, 7) == [1, 2, 3, 4, 5, 1, 2]
