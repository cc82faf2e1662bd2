"""Which weights q1s and q1t keep beside the grid: so many of the largest."""

import numpy as np
from numpy.typing import NDArray

from cmfio.codecs.base import F32

Indices = NDArray[np.int64]

BLOCK = 1 << 20
# The 31 bits of magnitudes order as these do; they are counted by their upper 16 first.
LOW_BITS = 15
MAGNITUDE = np.uint32(0x7FFF_FFFF)


def kept_count(count: int, share: float) -> int:
    """How many of `count` weights to keep; halves go up, as in the peer."""
    wanted = np.float32(count) * np.float32(share)
    return min(int(np.floor(np.float64(wanted) + 0.5)), count)


def nth_smallest(values: F32, rank: int) -> np.float32:
    """The magnitude of that rank, from 0. Two counts over blocks: no sorted copy."""
    flat = values.reshape(-1).view(np.uint32)
    high, below = _nth_key(flat, rank, None)
    low, _ = _nth_key(flat, rank - below, high)
    magnitude: np.float32 = np.uint32(high << LOW_BITS | low).view(np.float32)
    return magnitude


def from_magnitude(values: F32, least: float) -> Indices:
    """The flat indices of all values with that magnitude or a larger one."""
    flat = values.reshape(-1)
    found = [
        np.flatnonzero(np.abs(flat[start : start + BLOCK]) >= least) + start
        for start in range(0, flat.size, BLOCK)
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def largest(values: F32, count: int) -> Indices:
    """The flat indices of the `count` largest, ascending; of equals the first ones."""
    if not count:
        return np.empty(0, np.int64)
    least = nth_smallest(values, values.size - count)
    found = from_magnitude(values, float(least))
    equal = np.flatnonzero(np.abs(values.reshape(-1)[found]) == least)
    return np.delete(found, equal[len(equal) - (len(found) - count) :])


def _nth_key(bits: NDArray[np.uint32], rank: int, high: int | None) -> tuple[int, int]:
    """The key at that rank, and how many keys are smaller.

    Keys are the magnitudes' upper bits, or the lower ones of those whose upper are `high`.
    """
    counts = np.zeros(1 << 16, np.int64)
    for start in range(0, bits.size, BLOCK):
        keys = bits[start : start + BLOCK] & MAGNITUDE
        upper = keys >> LOW_BITS
        if high is not None:
            upper = keys[upper == high] & np.uint32((1 << LOW_BITS) - 1)
        counts += np.bincount(upper, minlength=len(counts))
    ends = np.cumsum(counts)
    key = int(np.searchsorted(ends, rank, side="right"))
    return key, int(ends[key] - counts[key])
