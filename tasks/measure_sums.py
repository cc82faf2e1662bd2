"""What a measure counted, summed by window: enough to pair it with another measure.

Axes: W windows, C chain steps, D depths of a round (as many), N temperatures.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from nets.hold import count_starts, count_walk
from nets.hold_views import to_depth
from tasks.measure_numbers import Measured

SUMS_TABLE = "sums.arrow"


def sums_table(found: Measured, held_out: Sequence[int]) -> pa.Table:
    """A row a held-out window, its sums as lists in C order.

    `window`, `set`; `counted`, `hit` [D, C] of the walk's rounds of each depth, 0 beyond
    it; `starts` [C], the starts that count; `accepted` [C, N, 4], the acceptance sums over
    them (`nets.acceptance`).
    """
    arrays = found.arrays
    windows, _, depth = arrays.counted_WTC.shape
    counted_WDC = np.zeros((windows, depth, depth), np.int64)
    hit_WDC = np.zeros_like(counted_WDC)
    for d in range(1, depth + 1):
        walk = count_walk(to_depth(arrays, d))
        counted_WDC[:, d - 1, :d], hit_WDC[:, d - 1, :d] = walk.counted_WC, walk.hit_WC
    whole, real = pa.list_(pa.int64()), pa.list_(pa.float64())
    flat = (windows, -1)
    columns = {
        "window": pa.array(held_out, pa.int64()),
        "set": pa.array(arrays.set_index_W, pa.int64()),
        "counted": pa.array(list(counted_WDC.reshape(flat)), whole),
        "hit": pa.array(list(hit_WDC.reshape(flat)), whole),
        "starts": pa.array(list(count_starts(arrays).counted_WC), whole),
        "accepted": pa.array(
            [one.ravel() for one in found.acceptance_WCN4.astype(np.float64)], real
        ),
    }
    return pa.table(columns)
