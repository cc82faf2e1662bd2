"""healing.md §7 as a measure tells it: one window worked by hand."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import tasks.measure
from nets.hold import HoldArrays
from tasks.measure_numbers import Measured, measured_json
from tasks.vocabulary import trimmed_vocabularies
from tests.small_heal import Ground, heal
from tests.test_tasks.test_vocabulary import PACKED, ROWS

# Five rows, chains of 2. From 0 both hold; at 3 the own token is the draft's third.
COUNTED = [[1, 1], [1, 1], [1, 0], [1, 0], [0, 0]]
HIT = [[1, 1], [1, 0], [0, 0], [0, 0], [0, 0]]
PLACE = [[1, 1], [1, 0], [2, 0], [3, 0], [0, 0]]
# Over the starts that count, 4 and 2: sampled from … to, greedy from … to.
ACCEPTED = [[[1.0, 2.0, 3.0, 3.5]], [[0.5, 1.0, 1.0, 1.5]]]


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    arrays = HoldArrays(
        np.array([COUNTED], bool), np.array([HIT], bool), np.array([5]), np.array([0])
    )
    place_WTC, accepted = np.array([PLACE], np.uint8), np.array([ACCEPTED])
    return measured_json(Measured(arrays, place_WTC, accepted, (0.7,)), ["own"], 0)


def test_rounds_of_each_depth_are_walked_anew(told: dict[str, Any]) -> None:
    # Rounds of 2 start at 0 (keeps 2), 3, 4; of 1 at 0 (keeps 1), 2, 3, 4.
    assert [(at["depth"], at["rows"]) for at in told["by_depth"]] == [
        (0, 0),
        (1, 3),
        (2, 2),
    ]
    held = [at["drafts_held"] for at in told["by_depth"]]
    assert held == pytest.approx([0.0, 1 / 3, 1 / 2 + 1 / 2])
    assert told["drafts_held"] == held[2]
    assert told["tokens_a_round"] == 2.0


def test_starts_and_coverage(told: dict[str, Any]) -> None:
    # Step 1 counts from 0, 1, 2, 3 and hits from 0, 1; step 2 counts from these two.
    assert told["drafts_held_starts"] == pytest.approx(1 / 2 + 1 / 2 * 1 / 2)
    assert [rate["rows"] for rate in told["hold_rates_starts"]] == [4, 2]
    assert told["coverage"] == 1.0


def test_the_own_token_among_the_best_of_the_walk_s_rounds(told: dict[str, Any]) -> None:
    first, second = told["best_of"]
    assert (first["rows"], first["top2"], first["top3"], first["top4"]) == (2, 0.5, 1, 1)
    assert (second["rows"], second["top2"], second["top4"]) == (1, 1, 1)


def test_each_place_has_the_rounds_that_start_there(told: dict[str, Any]) -> None:
    rates = {at["first"]: at["hold_rates"][0] for at in told["by_position"]}
    assert {row: rate["rows"] for row, rate in rates.items()} == {
        0: 1, 1: 0, 2: 0, 3: 1, 4: 0
    }  # fmt: skip
    assert (rates[0]["rate"], rates[3]["rate"], rates[1]["rate"]) == (1.0, 0.0, None)


def test_acceptance_under_sampling_is_over_the_starts_that_count(
    told: dict[str, Any],
) -> None:
    (at,) = told["sampling"]
    assert at["temperature"] == 0.7
    first, second = at["steps"]
    assert (first["rows"], second["rows"]) == (4, 2)
    assert first["sampled"] == pytest.approx([0.25, 0.5])
    assert first["greedy"] == pytest.approx([0.75, 0.875])
    assert second["sampled"] == pytest.approx([0.25, 0.5])
    assert second["greedy"] == pytest.approx([0.5, 0.75])


def test_vocabularies_are_trimmed_to_8k_16k_and_32k() -> None:
    for vocab, sizes in ((40_000, [8192, 16384, 32768]), (20_000, [8192, 16384])):
        found = trimmed_vocabularies(PACKED, ROWS, vocab)
        assert [one["size"] for one in found] == sizes


def test_a_measure_tells_the_coverage_of_a_trimmed_vocabulary(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = partial(trimmed_vocabularies, sizes=(100,))
    monkeypatch.setattr(tasks.measure, "trimmed_vocabularies", small)
    # Another depth, so that the measures are made anew.
    changed = ground.config(measure={"depth": 1}, train={"steps": 1})
    (found,) = heal(changed, ground.store).files.report.measures["stale"].vocabulary
    assert (found.size, found.rows > 0) == (100, True)
    assert 0 < found.own <= 1


def test_sampling_is_told_at_0_and_0_7_and_1_unless_asked_otherwise(
    finished: Ground,
) -> None:
    found = heal(finished.config(), finished.store).files.report.measures["healed"]
    assert [one.temperature for one in found.sampling] == [0.0, 0.7, 1.0]
