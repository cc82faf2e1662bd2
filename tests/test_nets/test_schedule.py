"""Rates and orders written out by hand, and when a checkpoint beats another."""

import numpy as np
import pytest

from nets.hold import HoldCounts
from nets.schedule import JobOrder, cut_batches, job_generator, learning_rate
from nets.selection import is_better


def test_rate_rises_over_a_tenth_then_falls_to_a_tenth() -> None:
    found = [learning_rate(step, 20, 1.0) for step in (1, 2, 11, 20)]
    assert found == pytest.approx([0.5, 1.0, 0.55, 0.1])


def test_a_single_step_has_the_whole_rate() -> None:
    assert learning_rate(1, 1, 3e-3) == 3e-3


def test_batches_are_neighbours_and_whole() -> None:
    assert cut_batches([3, 4, 6, 8, 9], 2) == [(3, 4), (6, 8)]
    assert cut_batches([3], 2) == []


def test_seed_0_is_the_reference_s_order() -> None:
    # r ^= r<<13; r ^= r>>7; r ^= r<<17 from 0x9e37…7c15, swapping 2 then 1, each pass.
    r, order, expected = 0x9E3779B97F4A7C15, [0, 1, 2], []
    for _ in range(4):
        for i in (2, 1):
            r ^= r << 13 & 0xFFFFFFFFFFFFFFFF
            r ^= r >> 7
            r ^= r << 17 & 0xFFFFFFFFFFFFFFFF
            j = r % (i + 1)
            order[i], order[j] = order[j], order[i]
        expected += order
    jobs = JobOrder([0, 1, 2], job_generator(0))
    assert [jobs.draw() for _ in range(12)] == expected


def test_other_seeds_are_other_orders() -> None:
    drawn = []
    for seed in range(4):
        jobs = JobOrder([*range(30)], job_generator(seed))
        drawn.append(tuple(jobs.draw() for _ in range(30)))
    assert len(set(drawn)) == 4
    assert all(sorted(order) == [*range(30)] for order in drawn)


def counts(*hits: int) -> HoldCounts:
    return HoldCounts(np.full((len(hits), 1), 10), np.array(hits)[:, None])


def test_a_gain_that_may_be_chance_keeps_the_earlier_checkpoint() -> None:
    best = counts(5, 5, 5, 5)
    # Mean gain .05 a window; its spread (.4, -.3, .4, -.3) has a standard error of .175.
    assert not is_better(counts(9, 2, 9, 2), best, seed=0)
    # The same gain, nearly equal in all windows: standard error about .025.
    assert is_better(counts(6, 5, 6, 5), best, seed=0)
    assert not is_better(best, best, seed=0)
