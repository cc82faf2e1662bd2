"""A measure split by place and depth equals plain loops, and adds up to the whole."""

import numpy as np
import pytest

from nets.hold import HoldArrays, HoldCounts, count_walk, drafts_held, held, share_interval
from nets.hold_views import by_position, place_counts, to_depth
from tests.oracles.counts import by_walk, chain


def random_arrays(
    seed: int, width: int = 21, depth: int = 4
) -> tuple[HoldArrays, list[tuple[list[int], list[int], list[list[int]]]]]:
    draw = np.random.default_rng(seed)
    windows, counted, hit = [], [], []
    for _ in range(5):
        ids = draw.integers(2, size=width).tolist()
        own = [
            ids[p + 1] if p + 1 < width and draw.random() < 0.85 else 1 - [*ids, 0][p + 1]
            for p in range(width)
        ]
        drafted = [
            [
                (own[min(p + j, width - 1)] if draw.random() < 0.7 else 9)
                for j in range(1, depth + 1)
            ]
            for p in range(width)
        ]
        windows.append((ids, own, drafted))
        marks = np.zeros((2, width, depth), bool)
        for p in range(width):
            for step, is_hit in enumerate(chain(p, ids, own, drafted)):
                marks[0, p, step], marks[1, p, step] = True, is_hit
        counted.append(marks[0])
        hit.append(marks[1])
    count = len(windows)
    arrays = HoldArrays(
        np.stack(counted), np.stack(hit), np.full(count, width), np.zeros(count, np.int64)
    )
    return arrays, windows


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_walk_of_shorter_rounds_equals_plain_loops(depth: int) -> None:
    arrays, windows = random_arrays(3)
    found = count_walk(to_depth(arrays, depth))
    for w, (ids, own, drafted) in enumerate(windows):
        wanted = by_walk(ids, own, [row[:depth] for row in drafted])
        assert [
            list(pair) for pair in zip(found.counted_WC[w], found.hit_WC[w], strict=True)
        ] == wanted


def test_rounds_start_elsewhere_at_another_depth() -> None:
    # Every draft holds: rounds of 1 start at 0, 2, 4; rounds of 2 at 0, 3.
    hit = np.ones((1, 6, 2), bool)
    hit[0, 4:, :] = [[True, False], [False, False]]
    arrays = HoldArrays(hit, hit, np.array([6]), np.array([0]))
    assert count_walk(to_depth(arrays, 1)).counted_WC.tolist() == [[3]]
    assert count_walk(to_depth(arrays, 2)).counted_WC.tolist() == [[2, 2]]


def test_bins_hold_their_own_rounds_and_add_up() -> None:
    arrays, _ = random_arrays(5)
    bins = list(by_position(arrays, 4))
    assert [(one.first, one.last) for one in bins] == [(0, 4), (5, 9), (10, 14), (15, 20)]
    walk = count_walk(arrays)
    np.testing.assert_array_equal(
        sum(one.counts.counted_WC for one in bins), walk.counted_WC
    )
    np.testing.assert_array_equal(sum(one.counts.hit_WC for one in bins), walk.hit_WC)
    started = np.zeros((1, 8, 1), bool)
    started[0, [0, 1, 5]] = True  # nothing hits: every row starts a round
    three = list(
        by_position(HoldArrays(started, started & False, np.array([8]), np.array([0])), 2)
    )
    assert [int(one.counts.counted_WC.sum()) for one in three] == [2, 1]
    assert len(list(by_position(to_depth(arrays, 1), 100))) == 21  # none is empty


def test_the_running_product_is_the_share_of_all_rounds() -> None:
    # 10 rounds: 8 hold step 1, 4 of these step 2: given that 0.8 and 0.5, over all 0.4.
    counts = HoldCounts(np.array([[10, 8]]), np.array([[8, 4]]))
    found = held(counts)
    assert [step.rate for step in found.steps] == [0.8, 0.5]
    assert [step.running for step in found.steps] == pytest.approx([0.8, 0.4])
    assert found.drafts_held == pytest.approx(drafts_held(counts)) == pytest.approx(1.2)


def test_the_own_token_among_the_first_few() -> None:
    counted = np.zeros((1, 4, 1), bool)
    counted[0, :3] = True
    hit = np.zeros((1, 4, 1), bool)
    hit[0, 0] = True  # so the next round starts at row 2, and row 1 is in none
    place = np.array([[[1], [2], [3], [1]]], np.uint8)  # the last doesn't count
    arrays = HoldArrays(counted, hit, np.array([4]), np.array([0]))
    for best, wanted in ((1, 1), (2, 1), (3, 2), (4, 2)):
        rows, inside = place_counts(arrays, place, best)
        assert (rows.tolist(), inside.tolist()) == ([[2]], [[wanted]])


def test_an_interval_of_a_share_is_of_windows() -> None:
    alike = share_interval(np.array([1.0, 2.0]), np.array([2, 4]))
    assert (alike.low, alike.high) == (0.5, 0.5)
    apart = share_interval(np.array([0.0, 4.0]), np.array([4, 4]))
    assert (apart.low, apart.high) == (0.0, 1.0)
