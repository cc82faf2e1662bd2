"""The loops of q8_row and q8_2f."""

import numpy as np
from numpy.typing import NDArray

from cmfio.codecs.base import F32
from cmfio.codecs.jit import kernel

I8 = NDArray[np.int8]


@kernel
def largest_of_rows(values: F32, largest: F32) -> None:
    """The largest magnitude of each row; through integers, whose maximum vectorises."""
    bits = values.view(np.int32)
    found = largest.view(np.int32)
    for r in range(values.shape[0]):
        so_far = np.int32(0)
        for c in range(values.shape[1]):
            so_far = max(so_far, bits[r, c] & np.int32(0x7FFF_FFFF))
        found[r] = so_far


@kernel
def steps_of_rows(values: F32, scale: F32, steps: I8) -> None:
    """values / their row's scale, half to even, into -128..127."""
    for r in range(values.shape[0]):
        s, row, out = scale[r], values[r], steps[r]
        for c in range(row.shape[0]):
            step = np.rint(row[c] / s)
            out[c] = np.int8(min(max(step, np.float32(-128)), np.float32(127)))


@kernel
def scaled_rows(steps: I8, scale: F32, values: F32) -> None:
    """Steps times their row's scale."""
    for r in range(values.shape[0]):
        s, row, out = scale[r], steps[r], values[r]
        for c in range(row.shape[0]):
            out[c] = np.float32(row[c]) * s


@kernel
def add_squares(values: F32, sums: NDArray[np.float64]) -> None:
    """Adds the squares of each column to its sum, row after row."""
    for r in range(values.shape[0]):
        row = values[r]
        for c in range(row.shape[0]):
            value = np.float64(row[c])
            sums[c] += value * value


@kernel
def largest_by_columns(values: F32, column: F32, largest: F32) -> None:
    """The largest magnitude of each row, its values divided by their columns' scales."""
    scaled = np.empty(column.shape[0], np.float32)
    bits, found = scaled.view(np.int32), largest.view(np.int32)
    for r in range(values.shape[0]):
        row, so_far = values[r], np.int32(0)
        for c in range(row.shape[0]):
            scaled[c] = row[c] / column[c]
        for c in range(bits.shape[0]):
            so_far = max(so_far, bits[c] & np.int32(0x7FFF_FFFF))
        found[r] = so_far


@kernel
def steps_by_columns(values: F32, column: F32, scale: F32, steps: I8) -> None:
    """values / column scale / row scale, half to even, into -127..127."""
    for r in range(values.shape[0]):
        s, row, out = scale[r], values[r], steps[r]
        for c in range(row.shape[0]):
            step = np.rint(row[c] / column[c] / s)
            out[c] = np.int8(min(max(step, np.float32(-127)), np.float32(127)))


@kernel
def scaled_by_columns(steps: I8, scale: F32, column: F32, values: F32) -> None:
    """Step times row scale, then times column scale, in that order."""
    for r in range(values.shape[0]):
        s, row, out = scale[r], steps[r], values[r]
        for c in range(row.shape[0]):
            out[c] = (np.float32(row[c]) * s) * column[c]
