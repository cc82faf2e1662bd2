"""What a draft holds: rates per chain step, drafts a round; by all starts and by the walk.

numpy only. A row of a chain *counts* when all its earlier steps hit and every token it was
fed is the trunk's own choice, and *hits* when the draft's top token is too (healing.md §7).
Axes: W windows, T positions, C chain steps, N bootstrap draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

DRAWS = 1000


@dataclass(frozen=True)
class HoldArrays:
    """Every chain of every window: `counted_WTC[w, p, j-1]` is step j of the chain from p.

    A hit always counts. `set_index_W` says which data set a window is from, `records_W`
    how many records kept apart it holds (None: its records see each other).
    """

    counted_WTC: BoolArray
    hit_WTC: BoolArray
    length_W: IntArray
    set_index_W: IntArray
    records_W: IntArray | None = None

    def of_set(self, set_index: int) -> "HoldArrays":
        """The windows of one data set."""
        mine_W = self.set_index_W == set_index
        return HoldArrays(
            self.counted_WTC[mine_W],
            self.hit_WTC[mine_W],
            self.length_W[mine_W],
            self.set_index_W[mine_W],
            None if self.records_W is None else self.records_W[mine_W],
        )


@dataclass(frozen=True)
class HoldCounts:
    """Rows that counted and hit, by window and step; windows are what a bootstrap draws."""

    counted_WC: IntArray
    hit_WC: IntArray


@dataclass(frozen=True)
class Interval:
    """A 95 % interval."""

    low: float
    high: float


@dataclass(frozen=True)
class StepRate:
    """Hold rate of one chain step and the rows it rests on; 0 where none counted.

    `rate` is given that the steps before held, `running` over all rounds: the product of
    the rates up to this one.
    """

    rate: float
    interval: Interval
    running: float
    running_interval: Interval
    counted: int
    hit: int


@dataclass(frozen=True)
class Held:
    """Drafts held a round D = Σ_j Π_{i≤j} r_i, with the rates r it follows from."""

    drafts_held: float
    interval: Interval
    steps: tuple[StepRate, ...]


@dataclass(frozen=True)
class HoldMeasure:
    """A draft's measure: by the walk (the headline), by all starts; share that counted."""

    walk: Held
    starts: Held
    coverage: float
    windows: int


def on_path(
    ids_WT: IntArray,
    top1_WT: IntArray,
    length_W: IntArray,
    depth: int,
    record_WT: IntArray | None = None,
) -> BoolArray:
    """Whether the chain from p may count at step j: [W, T, C].

    Every token fed up to step j is the trunk's choice, `ids[p+i] = top1[p+i-1]` for
    i = 1…j, and the row to predict from exists, `p+j < len`. With `record_WT`, which
    numbers the records of a window, row p+j is also in p's.
    """
    windows, width = ids_WT.shape
    # Whether token p is what the trunk chose at p-1.
    own_WT = np.zeros((windows, width + depth), bool)
    own_WT[:, 1:width] = ids_WT[:, 1:] == top1_WT[:, :-1]
    own_WT[:, :width] &= np.arange(width) < length_W[:, None]
    if record_WT is not None:
        own_WT[:, 1:width] &= record_WT[:, 1:] == record_WT[:, :-1]
    fed_WTC = np.stack([own_WT[:, j : width + j] for j in range(1, depth + 1)], axis=2)
    return np.logical_and.accumulate(fed_WTC, axis=2)


def count_starts(arrays: HoldArrays) -> HoldCounts:
    """Counts over the chains from every row."""
    return counts_from(arrays, np.ones(arrays.counted_WTC.shape[:2], bool))


def count_walk(arrays: HoldArrays) -> HoldCounts:
    """Counts over the rounds a greedy decode would have, from row 0 of each window.

    A round moves on by what it kept + 1; a start whose fed token is not the trunk's own
    counts nothing and moves on by one row (healing.md §7, order walk).
    """
    return counts_from(arrays, walked(arrays))


def walked(arrays: HoldArrays) -> BoolArray:
    """Where the walk's rounds start, skipped rows too: [W, T]."""
    windows, width, _ = arrays.hit_WTC.shape
    advance_WT = 1 + arrays.hit_WTC.sum(2)
    started_WT = np.zeros((windows, width), bool)
    window_W, start_W = np.arange(windows), np.zeros(windows, np.int64)
    while len(window_W) > 0:
        started_WT[window_W, start_W] = True
        start_W = start_W + advance_WT[window_W, start_W]
        inside_W = start_W < width
        window_W, start_W = window_W[inside_W], start_W[inside_W]
    return started_WT


def counts_from(arrays: HoldArrays, started_WT: BoolArray) -> HoldCounts:
    """Counts over the chains from these rows."""
    started_WT1 = started_WT[:, :, None]
    return HoldCounts(
        (arrays.counted_WTC & started_WT1).sum(1), (arrays.hit_WTC & started_WT1).sum(1)
    )


def rates(counts: HoldCounts) -> tuple[float, ...]:
    """Hold rate of each chain step over all windows."""
    return tuple(float(r) for r in rates_of(counts.counted_WC.sum(0), counts.hit_WC.sum(0)))


def drafts_held(counts: HoldCounts) -> float:
    """D = Σ_j Π_{i≤j} r_i over all windows."""
    return float(_drafts_held(np.asarray(rates(counts))))


def reach(hold_rates: Sequence[float]) -> tuple[float, ...]:
    """Π_{i<j} r_i: the probability that a round reaches each step; 1 for the first."""
    return tuple(float(p) for p in np.cumprod([1.0, *hold_rates[:-1]]))


def coverage(arrays: HoldArrays) -> float:
    """Counted rows of step 1 over rows that have a next one: how much of the text counts.

    With records apart, the last row of each has none.
    """
    last_W = 1 if arrays.records_W is None else arrays.records_W
    rows = int(np.maximum(arrays.length_W - last_W, 0).sum())
    return float(arrays.counted_WTC[:, :, 0].sum()) / rows if rows else 0.0


def measure_holds(arrays: HoldArrays, seed: int = 0) -> HoldMeasure:
    """Rates and drafts held with seeded 95 % bootstrap intervals over windows."""
    return HoldMeasure(
        walk=held(count_walk(arrays), seed),
        starts=held(count_starts(arrays), seed),
        coverage=coverage(arrays),
        windows=len(arrays.length_W),
    )


def held(counts: HoldCounts, seed: int = 0) -> Held:
    """Drafts held and hold rates of these counts; equal seeds give equal intervals."""
    counted_C, hit_C = counts.counted_WC.sum(0), counts.hit_WC.sum(0)
    drawn_rate_NC = _drawn_rates(counts, _draws(len(counts.hit_WC), seed))
    drawn_running_NC = np.asarray(np.cumprod(drawn_rate_NC, axis=1), np.float64)
    rate_C = rates_of(counted_C, hit_C)
    running_C = np.cumprod(rate_C)
    steps = tuple(
        StepRate(
            float(rate),
            _interval(drawn_rate_NC[:, j]),
            float(running_C[j]),
            _interval(drawn_running_NC[:, j]),
            int(counted_C[j]),
            int(hit_C[j]),
        )
        for j, rate in enumerate(rate_C)
    )
    return Held(float(running_C.sum()), _interval(drawn_running_NC.sum(1)), steps)


def drawn_drafts_held(counts: HoldCounts, seed: int = 0) -> FloatArray:
    """D of each bootstrap draw, [N]; equal seeds draw the same of as many windows."""
    return _drafts_held(_drawn_rates(counts, _draws(len(counts.hit_WC), seed)))


def paired_gain_se(new: HoldCounts, old: HoldCounts, seed: int = 0) -> float:
    """Standard error of D(new) − D(old), counted on the same windows in the same order."""
    return float((drawn_drafts_held(new, seed) - drawn_drafts_held(old, seed)).std())


def share_interval(count_W: NDArray[np.float64], of_W: IntArray, seed: int = 0) -> Interval:
    """The interval of Σ count / Σ of, drawn over windows."""
    draws_NW = _draws(len(of_W), seed)
    return _interval(rates_of(draws_NW @ of_W, draws_NW @ count_W).astype(np.float64))


def summed_shares(count_WC: FloatArray, of_WC: IntArray, seed: int = 0) -> Interval:
    """The interval of Σ_C (Σ_W count / Σ_W of), drawn over windows."""
    draws_NW = _draws(len(of_WC), seed)
    return _interval(
        np.asarray(rates_of(draws_NW @ of_WC, draws_NW @ count_WC).sum(1), np.float64)
    )


def _draws(windows: int, seed: int) -> FloatArray:
    """How often each window is drawn, [N, W]: N draws of W windows with replacement."""
    if windows == 0:
        return np.empty((DRAWS, 0))
    generator = np.random.default_rng(seed)
    return generator.multinomial(windows, np.full(windows, 1 / windows), DRAWS).astype(
        float
    )


def _drawn_rates(counts: HoldCounts, draws_NW: FloatArray) -> FloatArray:
    return rates_of(draws_NW @ counts.counted_WC, draws_NW @ counts.hit_WC)


def rates_of(counted: NDArray[np.number], hit: NDArray[np.number]) -> FloatArray:
    """Hits a row that counts, place by place; 0 where no row does."""
    rate: FloatArray = np.zeros(np.shape(hit))
    np.divide(hit, counted, out=rate, where=counted > 0)
    return rate


def _drafts_held(rate: FloatArray) -> FloatArray:
    """D along the last axis."""
    return np.asarray(np.cumprod(rate, axis=-1).sum(-1))


def _interval(values_N: FloatArray) -> Interval:
    low, high = np.quantile(values_N, [0.025, 0.975])
    return Interval(float(low), float(high))
