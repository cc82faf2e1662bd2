"""Other looks at one measure: by place in the window, by depth, by the four best tokens.

numpy only. Axes: W windows, T positions, C chain steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nets.hold import HoldArrays, HoldCounts, IntArray, counts_from, walked

BINS = 8


@dataclass(frozen=True)
class PositionCounts:
    """Counts of the walk's rounds that start at rows `first` to `last`."""

    first: int
    last: int
    counts: HoldCounts


def by_position(arrays: HoldArrays, bins: int = BINS) -> Iterator[PositionCounts]:
    """The walk's counts split by where a round starts, in bins as even as rows allow."""
    width = arrays.counted_WTC.shape[1]
    started_WT, row_T = walked(arrays), np.arange(width)
    edges = [width * i // bins for i in range(bins + 1)]
    for first, end in pairwise(edges):
        if first < end:
            inside_T = (row_T >= first) & (row_T < end)
            yield PositionCounts(first, end - 1, counts_from(arrays, started_WT & inside_T))


def to_depth(arrays: HoldArrays, depth: int) -> HoldArrays:
    """The same chains, none longer than `depth`: what a walk of shorter rounds reads."""
    return HoldArrays(
        arrays.counted_WTC[:, :, :depth],
        arrays.hit_WTC[:, :, :depth],
        arrays.length_W,
        arrays.set_index_W,
        arrays.records_W,
    )


def place_counts(
    arrays: HoldArrays, place_WTC: NDArray[np.uint8], best: int
) -> tuple[IntArray, IntArray]:
    """By window and step of the walk's rounds, [W, C]: rows, and those hit in the `best`.

    `place_WTC` is the place of the trunk's own token among the draft's best, from 1; 0
    where it is none of them.
    """
    counted_WTC = arrays.counted_WTC & walked(arrays)[:, :, None]
    is_in_WTC = counted_WTC & (place_WTC > 0) & (place_WTC <= best)
    return counted_WTC.sum(1), is_in_WTC.sum(1)
