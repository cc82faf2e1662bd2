"""Counting by starts and by the walk: by hand, then plain loops on random windows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from nets.hold import (
    HoldArrays,
    HoldCounts,
    count_starts,
    count_walk,
    coverage,
    drafts_held,
    drawn_drafts_held,
    held,
    measure_holds,
    on_path,
    paired_gain_se,
    rates,
    reach,
    share_interval,
    summed_shares,
)
from tests.oracles.counts import Counts, by_starts, by_walk


@dataclass(frozen=True)
class Window:
    """A window as the oracle takes it; see `tests.oracles.counts`."""

    ids: Sequence[int]
    own: Sequence[int]
    drafted: Sequence[Sequence[int]]


def arrays_of(windows: Sequence[Window], width: int) -> HoldArrays:
    """The arrays of these windows padded to `width`, hits decided from what was drafted."""
    shape = (len(windows), width)
    ids, own = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    depth = len(windows[0].drafted[0])
    drafted = np.full((*shape, depth), -1, np.int64)
    for w, window in enumerate(windows):
        ids[w, : len(window.ids)] = window.ids
        own[w, : len(window.own)] = window.own
        drafted[w, : len(window.drafted)] = window.drafted
    length = np.array([len(window.ids) for window in windows])
    counted = on_path(ids, own, length, depth)
    hit = np.zeros_like(counted)
    for c in range(depth):
        if c > 0:
            counted[:, :, c] &= hit[:, :, c - 1]
        target = np.zeros(shape, np.int64)
        target[:, : width - c - 1] = own[:, c + 1 :]
        hit[:, :, c] = counted[:, :, c] & (drafted[:, :, c] == target)
    return HoldArrays(counted, hit, length, np.zeros(len(windows), np.int64))


def per_step(counts: HoldCounts) -> Counts:
    pairs = zip(counts.counted_WC.sum(0), counts.hit_WC.sum(0), strict=True)
    return [[int(counted), int(hit)] for counted, hit in pairs]


# The trunk says 1, 2, 3, … after 0, 1, 2, …; the text follows it but for the 9 at row 4.
TEXT = Window(
    ids=[0, 1, 2, 3, 9, 5, 6, 7],
    own=[1, 2, 3, 4, 5, 6, 7, 8],
    # Step j of the chain from p is right if it drafts own[p+j] = p+j+1.
    drafted=[
        [2, 3],  # both right
        [3, 0],  # right, wrong
        [4, 5],  # step 1 right; step 2 is fed the 9, which the trunk did not write
        [5, 6],  # is fed the 9 at once
        [6, 7],  # both right
        [0, 8],  # wrong
        [8, 9],  # step 1 right; step 2 would predict past the end
        [9, 9],  # nothing after the last row
    ],
)


def test_counts_over_all_starts_by_hand() -> None:
    # Step 1 counts from 0, 1, 2, 4, 5, 6, a miss at 5; step 2 from 0, 1, 4, a miss at 1.
    assert per_step(count_starts(arrays_of([TEXT], 8))) == [[6, 5], [3, 2]]


def test_walk_by_hand() -> None:
    # From 0 it keeps 2 and goes to 3, skips it, from 4 keeps 2 and goes to 7, the end.
    assert per_step(count_walk(arrays_of([TEXT], 8))) == [[2, 2], [2, 2]]


def test_a_round_starts_where_the_last_one_missed() -> None:
    window = Window(
        [0, 1, 2, 3, 4], [1, 2, 3, 4, 5], [[2, 9], [3, 9], [9, 9], [5, 9], [9, 9]]
    )
    # From 0 keeps 1 → 2, misses → 3, keeps 1 (step 2 would be past the end) → 5.
    assert per_step(count_walk(arrays_of([window], 5))) == [[3, 2], [1, 0]]


def test_rates_drafts_held_and_coverage_by_hand() -> None:
    arrays = arrays_of([TEXT], 8)
    counts = count_starts(arrays)
    assert rates(counts) == pytest.approx((5 / 6, 2 / 3))
    assert drafts_held(counts) == pytest.approx(5 / 6 + 5 / 6 * 2 / 3)
    assert coverage(arrays) == pytest.approx(6 / 7)
    assert reach((0.5, 0.4, 0.9)) == pytest.approx((1.0, 0.5, 0.2))


def random_window(generator: np.random.Generator, length: int, depth: int) -> Window:
    """Text over three tokens, so that own tokens, hits and misses are all common."""
    own = generator.integers(0, 3, length)
    ids = np.concatenate([[0], own[:-1]])
    strange = generator.random(length) < 0.2
    ids = np.where(strange, generator.integers(0, 3, length), ids)
    drafted: NDArray[np.int64] = generator.integers(0, 3, (length, depth))
    for j in range(1, depth + 1):
        right = generator.random(length) < 0.6
        right[max(length - j, 0) :] = False
        drafted[right, j - 1] = own[np.flatnonzero(right) + j]
    return Window(ids.tolist(), own.tolist(), drafted.tolist())


@pytest.mark.parametrize("seed", range(8))
def test_counts_equal_plain_loops(seed: int) -> None:
    generator = np.random.default_rng(seed)
    windows = [random_window(generator, length, 3) for length in (1, 2, 4, 19, 30)]
    arrays = arrays_of(windows, 30)
    starts, walk = count_starts(arrays), count_walk(arrays)
    for w, window in enumerate(windows):
        mine = [
            [[*map(int, pair)] for pair in zip(c.counted_WC[w], c.hit_WC[w], strict=True)]
            for c in (starts, walk)
        ]
        plain = [
            count(window.ids, window.own, window.drafted) for count in (by_starts, by_walk)
        ]
        assert mine == plain, f"window {w}: {window}"


def test_no_rows_are_rate_zero_not_an_error() -> None:
    nothing = HoldCounts(np.array([[3, 0]]), np.array([[0, 0]]))
    assert rates(nothing) == (0.0, 0.0)
    assert held(nothing).steps[1].counted == 0


def spread_counts(seed: int, windows: int) -> HoldCounts:
    generator = np.random.default_rng(seed)
    counted = np.full((windows, 1), 40)
    return HoldCounts(counted, generator.binomial(counted, 0.6))


def test_interval_is_the_binomial_one_when_windows_are_alike() -> None:
    # 100 windows of 40 independent rows at 0.6: se = sqrt(.6·.4/4000) = 0.00775.
    found = held(spread_counts(1, 100))
    low, high = found.interval.low, found.interval.high
    # The sample's own spread over 100 windows is within 15 % (two sigma) of that, the
    # bootstrap's quantiles of 1000 draws within some 5 %.
    assert high - low == pytest.approx(2 * 1.96 * 0.00775, rel=0.2)
    assert low < found.drafts_held < high
    assert held(spread_counts(1, 100)) == found


def test_an_interval_cuts_a_fortieth_of_the_draws_off_each_end() -> None:
    counts = spread_counts(4, 30)
    least = sorted(drawn_drafts_held(counts).tolist())
    assert len(least) == 1000
    # 0.025 and 0.975 of the way along 999 gaps: 24.975 and 974.025.
    low = least[24] + 0.975 * (least[25] - least[24])
    high = least[974] + 0.025 * (least[975] - least[974])
    found = held(counts).interval
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-12)


def test_without_a_seed_draws_are_those_of_seed_0() -> None:
    counts, other = spread_counts(5, 30), spread_counts(6, 30)
    hit_W, counted_W = counts.hit_WC[:, 0].astype(float), counts.counted_WC[:, 0]
    hit_WTC = np.random.default_rng(7).random((9, 5, 1)) < 0.5
    all_WTC = np.ones_like(hit_WTC)
    arrays = HoldArrays(all_WTC, hit_WTC, np.full(9, 5), np.zeros(9, np.int64))
    assert measure_holds(arrays) == measure_holds(arrays, 0) != measure_holds(arrays, 1)
    assert held(counts) == held(counts, 0) != held(counts, 1)
    drawn = [drawn_drafts_held(counts, *seed).tolist() for seed in ((), (0,), (1,))]
    assert drawn[0] == drawn[1] != drawn[2]
    paired = [paired_gain_se(counts, other, *seed) for seed in ((), (0,), (1,))]
    assert paired[0] == paired[1] != paired[2]
    shares = [share_interval(hit_W, counted_W, *seed) for seed in ((), (0,), (1,))]
    assert shares[0] == shares[1] != shares[2]
    sums = [summed_shares(hit_W[:, None], counts.counted_WC, *s) for s in ((), (0,), (1,))]
    assert sums[0] == sums[1] != sums[2]


def test_shares_are_summed_over_steps_not_windows() -> None:
    # Each window has shares 1/2 and 1/4, so every draw has 3/4.
    of_WC = np.array([[2, 4], [4, 8]])
    found = summed_shares(np.array([[1.0, 1.0], [2.0, 2.0]]), of_WC)
    assert (found.low, found.high) == pytest.approx((0.75, 0.75))


def test_windows_without_a_next_row_cover_nothing() -> None:
    counted = np.zeros((2, 3, 1), bool)
    counted[1, 0] = True
    both = HoldArrays(counted, counted, np.array([1, 3]), np.array([0, 1]))
    assert coverage(both) == 0.5  # of rows 0 and 1 of the second
    assert coverage(both.of_set(0)) == 0.0
    nothing = measure_holds(both.of_set(2))
    assert (nothing.windows, nothing.coverage, nothing.walk.drafts_held) == (0, 0.0, 0.0)
    assert nothing.walk.interval.high == 0.0


def test_one_row_is_enough_for_a_rate() -> None:
    assert rates(HoldCounts(np.array([[1]]), np.array([[1]]))) == (1.0,)


def test_paired_error_is_small_where_windows_move_together() -> None:
    old = spread_counts(2, 100)
    together = HoldCounts(old.counted_WC, np.minimum(old.hit_WC + 2, 40))
    # A gain of 2/40 in every window is sure; unrelated draws have the errors of both.
    assert paired_gain_se(together, old) < 1e-3
    apart = paired_gain_se(spread_counts(3, 100), old)
    assert apart == pytest.approx(0.00775 * 2**0.5, rel=0.25)


def test_measure_splits_by_data_set() -> None:
    good = Window([0, 1, 2], [1, 2, 3], [[2], [3], [0]])
    bad = Window([0, 1, 2], [1, 2, 3], [[0], [0], [0]])
    both = arrays_of([good, bad, bad], 3)
    both = HoldArrays(both.counted_WTC, both.hit_WTC, both.length_W, np.array([0, 1, 1]))
    assert measure_holds(both.of_set(0)).walk.drafts_held == 1.0
    assert measure_holds(both.of_set(1)).walk.drafts_held == 0.0
    assert measure_holds(both.of_set(1)).windows == 2
    assert measure_holds(both).starts.steps[0].rate == pytest.approx(2 / 6)
