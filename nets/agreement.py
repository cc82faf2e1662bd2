"""How often a draft's chains name the trunk's own choice, over every row; numpy only.

A hold rate (healing.md §7) rests on the rows that count. Here every row with a token to
predict does, whatever its chain was fed: so a few windows tell two readings of one draft
apart. Intervals are 99 %, from a seeded bootstrap over blocks of neighbouring rows.
Axes: W windows, T positions, C chain steps, N blocks, D bootstrap draws.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nets.hold import FloatArray, IntArray, Interval, rates_of

NO_TOKEN = -1
BLOCK_ROWS = 16
DRAWS = 1000
ENDS = (0.005, 0.995)


@dataclass(frozen=True)
class Agreement:
    """Rows compared and rows that agreed, by block and chain step."""

    rows_NC: IntArray
    agreed_NC: IntArray

    @property
    def rates(self) -> FloatArray:
        """Share of the rows that agreed at each step, [C]."""
        return rates_of(self.rows_NC.sum(0), self.agreed_NC.sum(0))

    @property
    def drafts(self) -> float:
        """Drafts of a chain that agree, by expectation: the sum of the rates."""
        return float(self.rates.sum())


def agreement(choice_WTC: IntArray, target_WTC: IntArray) -> Agreement:
    """Compares tokens where both are there; `NO_TOKEN` is none."""
    is_row_WTC = (choice_WTC != NO_TOKEN) & (target_WTC != NO_TOKEN)
    agrees_WTC = is_row_WTC & (choice_WTC == target_WTC)
    return Agreement(_by_block(is_row_WTC), _by_block(agrees_WTC))


def targets(top1_WT: IntArray, length_W: IntArray, depth: int) -> IntArray:
    """What step j from row p must name, the trunk's choice at p + j; [W, T, C]."""
    width = top1_WT.shape[1]
    known_WT = np.where(np.arange(width) < length_W[:, None], top1_WT, NO_TOKEN)
    padded_WT = np.pad(known_WT, ((0, 0), (0, depth)), constant_values=NO_TOKEN)
    ahead = [padded_WT[:, j : width + j] for j in range(1, depth + 1)]
    return np.stack(ahead, axis=2)


def shifted(top1_WT: IntArray, length_W: IntArray) -> IntArray:
    """The trunk's choices moved on by half of each window's rows, round its end."""
    moved_WT = top1_WT.copy()
    for row_T, length in zip(moved_WT, length_W, strict=True):
        row_T[:length] = np.roll(row_T[:length], -(int(length) // 2))
    return moved_WT


def chance_rates(target_WTC: IntArray) -> FloatArray:
    """What naming each window's commonest target would hold at each step.

    No guess made without looking at the row can expect to hold more.
    """
    most_C = np.zeros(target_WTC.shape[2], np.int64)
    for window_TC in target_WTC:
        for c, column_T in enumerate(window_TC.T):
            there = column_T[column_T != NO_TOKEN]
            most_C[c] += np.unique_counts(there).counts.max(initial=0)
    return rates_of((target_WTC != NO_TOKEN).sum((0, 1)), most_C)


def low_rates(found: Agreement, seed: int = 0) -> FloatArray:
    """The low end of each step's rate."""
    rate_DC = _drawn_rates(found, _draws(len(found.rows_NC), seed))
    low_C: FloatArray = np.quantile(rate_DC, ENDS[0], axis=0)
    return low_C


def behind(one: Agreement, best: Agreement, seed: int = 0) -> Interval:
    """How many drafts of a chain fewer agree than for `best`, paired over its blocks."""
    draws_DN = _draws(len(best.rows_NC), seed)
    gap_D = (_drawn_rates(best, draws_DN) - _drawn_rates(one, draws_DN)).sum(1)
    low, high = np.quantile(gap_D, ENDS)
    return Interval(float(low), float(high))


def _by_block(flag_WTC: NDArray[np.bool_]) -> IntArray:
    windows, width, depth = flag_WTC.shape
    missing = -width % BLOCK_ROWS
    whole_WTC = np.pad(flag_WTC, ((0, 0), (0, missing), (0, 0)))
    blocks: IntArray = whole_WTC.reshape(windows, -1, BLOCK_ROWS, depth).sum(2)
    return blocks.reshape(-1, depth)


def _draws(blocks: int, seed: int) -> IntArray:
    """How often each block is drawn, [D, N]."""
    generator = np.random.default_rng(seed)
    return generator.multinomial(blocks, np.full(blocks, 1 / blocks), DRAWS)


def _drawn_rates(found: Agreement, draws_DN: IntArray) -> FloatArray:
    return rates_of(draws_DN @ found.rows_NC, draws_DN @ found.agreed_NC)
