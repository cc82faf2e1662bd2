"""A measure as plain JSON: what docs/stages.md says a `measure_draft` tells."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nets.hold import (
    Held,
    HoldArrays,
    HoldCounts,
    count_starts,
    count_walk,
    held,
    measure_holds,
    rates,
    share_interval,
)
from nets.hold_views import by_position, place_counts, to_depth

BEST = (2, 3, 4)


@dataclass(frozen=True)
class Measured:
    """What was found on some windows: chains, places of the own token, acceptance sums.

    `acceptance_WCN4` is summed over the starts that count (`nets.acceptance`), at the
    temperatures named.
    """

    arrays: HoldArrays
    place_WTC: npt.NDArray[np.uint8]
    acceptance_WCN4: npt.NDArray[np.float64]
    temperatures: tuple[float, ...]

    def of_set(self, set_index: int) -> "Measured":
        """The windows of one data set."""
        mine_W = self.arrays.set_index_W == set_index
        return Measured(
            self.arrays.of_set(set_index),
            self.place_WTC[mine_W],
            self.acceptance_WCN4[mine_W],
            self.temperatures,
        )


def measured_json(found: Measured, names: Sequence[str], seed: int) -> dict[str, Any]:
    """All windows, then each data set that has any."""
    held_out = {int(index) for index in found.arrays.set_index_W}
    by_set = {
        name: _one(found.of_set(index), seed)
        for index, name in enumerate(names)
        if index in held_out
    }
    depth = found.arrays.counted_WTC.shape[2]
    return {**_one(found, seed), "by_set": by_set, "depth": depth}


def _one(found: Measured, seed: int) -> dict[str, Any]:
    arrays = found.arrays
    measure = measure_holds(arrays, seed)
    walk = measure.walk
    return {
        "drafts_held": walk.drafts_held,
        "drafts_held_starts": measure.starts.drafts_held,
        "interval": [walk.interval.low, walk.interval.high],
        "tokens_a_round": 1.0 + walk.drafts_held,
        "rows": walk.steps[0].counted,
        "windows": measure.windows,
        "coverage": measure.coverage,
        "hold_rates": _rates(walk),
        "hold_rates_starts": _rates(measure.starts),
        "by_position": [
            {
                "first": here.first,
                "last": here.last,
                "hold_rates": _rates(held(here.counts, seed)),
            }
            for here in by_position(arrays)
        ],
        "by_depth": list(_by_depth(arrays, seed)),
        "best_of": _best_of(found),
        "sampling": list(_sampling(found, seed)),
    }


def _rates(found: Held) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "rate": rate.rate if rate.counted else None,
            "lo": rate.interval.low if rate.counted else None,
            "hi": rate.interval.high if rate.counted else None,
            "rows": rate.counted,
            "running": rate.running if rate.counted else None,
            "running_lo": rate.running_interval.low if rate.counted else None,
            "running_hi": rate.running_interval.high if rate.counted else None,
        }
        for step, rate in enumerate(found.steps, start=1)
    ]


def _by_depth(arrays: HoldArrays, seed: int) -> Iterator[dict[str, Any]]:
    """Drafts held by the walk of rounds of each depth; depth 0 is plain decoding."""
    yield {"depth": 0, "drafts_held": 0.0, "interval": [0.0, 0.0], "rows": 0}
    for depth in range(1, arrays.counted_WTC.shape[2] + 1):
        walk = held(count_walk(to_depth(arrays, depth)), seed)
        yield {
            "depth": depth,
            "drafts_held": walk.drafts_held,
            "interval": [walk.interval.low, walk.interval.high],
            "rows": walk.steps[0].counted,
        }


def _best_of(found: Measured) -> list[dict[str, Any]]:
    counts = [place_counts(found.arrays, found.place_WTC, best) for best in BEST]
    told: list[dict[str, Any]] = [
        {"step": step, "rows": int(rows)}
        for step, rows in enumerate(counts[0][0].sum(0), start=1)
    ]
    for best, (rows_WC, in_WC) in zip(BEST, counts, strict=True):
        shares = rates(HoldCounts(rows_WC, in_WC))
        for line, share in zip(told, shares, strict=True):
            line[f"top{best}"] = share if line["rows"] else None
    return told


def _sampling(found: Measured, seed: int) -> Iterator[dict[str, Any]]:
    rows_WC = count_starts(found.arrays).counted_WC
    for n, temperature in enumerate(found.temperatures):
        yield {
            "temperature": temperature,
            "steps": [
                _accepted(step, found.acceptance_WCN4[:, step - 1, n], rows_W, seed)
                for step, rows_W in enumerate(rows_WC.T, start=1)
            ],
        }


def _accepted(
    step: int, sums_W4: npt.NDArray[np.float64], rows_W: npt.NDArray[np.int64], seed: int
) -> dict[str, Any]:
    rows = int(rows_W.sum())
    told: dict[str, Any] = {"step": step, "rows": rows}
    for name, first in (("sampled", 0), ("greedy", 2)):
        ends_W2 = sums_W4[:, first : first + 2]
        if not rows:
            told |= {name: None, f"{name}_interval": None}
            continue
        low, high = (ends_W2.sum(0) / rows).tolist()
        below, above = (share_interval(ends_W, rows_W, seed) for ends_W in ends_W2.T)
        # Bounds summed in another order may pass each other, or 1, by a rounding.
        told |= {
            name: [low, min(max(low, high), 1.0)],
            f"{name}_interval": [below.low, min(max(below.low, above.high), 1.0)],
        }
    return told
