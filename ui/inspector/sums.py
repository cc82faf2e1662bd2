"""Two measures of the same windows, paired: what they differ by, and how surely.

A measure keeps what it counted summed by window (`tasks/measure_sums.py`); windows are what
the bootstrap draws, the same ones for both sides (healing.md §7). Axes: W windows, C chain
steps, D depths of a round (as many), N draws of the bootstrap, M temperatures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from store.tables import read_table
from ui.contents import Z95
from ui.inspector.depot import Damaged

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]

TABLE = "sums.arrow"
COLUMNS = ("window", "set", "counted", "hit", "starts", "accepted")
DRAWS = 1000


@dataclass(frozen=True)
class Sums:
    """What a measure counted, by window; walks of each depth d lie at [:, d − 1, :d]."""

    window_W: Counts
    set_W: Counts
    counted_WDC: Counts
    hit_WDC: Counts
    starts_WC: Counts
    accepted_WCM4: Floats

    @property
    def depth(self) -> int:
        """Drafts of a round."""
        return int(self.counted_WDC.shape[1])

    def of_set(self, index: int) -> "Sums":
        """The windows of one data set."""
        mine_W = self.set_W == index
        return Sums(*(getattr(self, name)[mine_W] for name in Sums.__dataclass_fields__))


def read_sums(path: Path, temperatures: int) -> Sums:
    """The table of a measure at `temperatures`. Damaged where its rows do not fit."""
    table = read_table(path)
    if set(COLUMNS) - set(table.column_names) or not table.num_rows:
        raise Damaged(f"{path}: no sums by window; run its command again to have them.")
    window, of_set, counted, hit, starts, accepted = (
        np.asarray(table.column(name).to_pylist()) for name in COLUMNS
    )
    rows, depth = len(window), starts.shape[-1]
    square = (rows, depth, depth)
    try:
        return Sums(
            window, of_set, counted.reshape(square), hit.reshape(square), starts,
            accepted.reshape(rows, depth, temperatures, 4).astype(np.float64),
        )  # fmt: skip
    except ValueError as error:
        raise Damaged(f"{path}: the sums by window have another shape.") from error


@lru_cache(maxsize=8)
def _draws(windows: int) -> Floats:
    """How often each window is taken, [1 + N, W]: once, then as each draw has it.

    Seeded as the measures' own intervals are.
    """
    generator = np.random.default_rng(0)
    each = np.full(windows, 1 / windows)
    drawn_NW = generator.multinomial(windows, each, DRAWS).astype(np.float64)
    return np.concatenate([np.ones((1, windows)), drawn_NW])


def rates_drawn(sums: Sums, depth: int) -> Floats:
    """Hold rates [1 + N, depth] of rounds of a depth: as measured, then each draw's."""
    return _shares(
        sums.hit_WDC[:, depth - 1, :depth], sums.counted_WDC[:, depth - 1, :depth]
    )


def held_drawn(sums: Sums, depth: int) -> Floats:
    """Drafts held a round of a depth, [1 + N]."""
    return np.asarray(np.cumprod(rates_drawn(sums, depth), axis=1).sum(1))


def rounds_drawn(sums: Sums) -> Floats:
    """Of all rounds the share that holds 0 … C drafts, [1 + N, C + 1]."""
    rate = rates_drawn(sums, sums.depth)
    reach = np.cumprod(rate, axis=1)
    before = np.concatenate([np.ones((len(rate), 1)), reach[:, :-1]], axis=1)
    return np.concatenate([before * (1 - rate), reach[:, -1:]], axis=1)


def accepted_drawn(sums: Sums, at: int, first: int) -> Floats:
    """A bound of the acceptance at the temperature of place `at`, [1 + N, C].

    `first`: 0 and 1 are the low and high bound of drawn drafts, 2 and 3 of first tokens.
    """
    return _shares(sums.accepted_WCM4[:, :, at, first], sums.starts_WC)


def _shares(count_WC: npt.NDArray[np.number], of_WC: Counts) -> Floats:
    """Σ count ∕ Σ of over the windows as they are, and as each draw has them."""
    draws = _draws(len(of_WC))
    counted, of = draws @ count_WC, draws @ of_WC
    found: Floats = np.zeros(counted.shape)
    np.divide(counted, of, out=found, where=of > 0)
    return found


def half_width(drawn_N: Floats) -> float:
    """Half a 95 % interval of a difference, by its standard error over the draws."""
    return Z95 * float(drawn_N[1:].std())


def interval(drawn_N: Floats) -> Interval:
    """From the 2.5 % to the 97.5 % quantile of the draws."""
    low, high = np.quantile(drawn_N[1:], [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True)
class Pair:
    """Sums of A and B over the same windows in the same order."""

    a: Sums
    b: Sums

    @property
    def is_as_deep(self) -> bool:
        """Whether rounds of both hold as many drafts."""
        return self.a.depth == self.b.depth

    def of_set(self, index: int) -> "Pair":
        """One data set's windows."""
        return Pair(self.a.of_set(index), self.b.of_set(index))

    def held(self, depth: int) -> float:
        """Half the interval of B − A in drafts held by rounds of this depth."""
        return half_width(held_drawn(self.b, depth) - held_drawn(self.a, depth))

    def rates(self) -> tuple[float, ...]:
        """The same of hold rates, by the steps that both have."""
        steps = min(self.a.depth, self.b.depth)
        drawn = [rates_drawn(one, one.depth)[:, :steps] for one in (self.a, self.b)]
        return _halves(drawn)

    def rounds(self) -> tuple[float, ...]:
        """The same of shares of rounds, by drafts held; rounds must be as deep."""
        return _halves([rounds_drawn(one) for one in (self.a, self.b)])

    def accepted(self, at: tuple[int, int], step: int, first: int) -> Interval:
        """The interval of B − A in acceptance, both bounds in it; `at`: A's, B's place."""
        low_a, high_a, low_b, high_b = (
            accepted_drawn(one, place, first + end)[:, step - 1]
            for one, place in ((self.a, at[0]), (self.b, at[1]))
            for end in (0, 1)
        )
        return interval(low_b - high_a)[0], interval(high_b - low_a)[1]


def _halves(drawn: Sequence[Floats]) -> tuple[float, ...]:
    a, b = drawn
    return tuple(half_width(column) for column in (b - a).T)
