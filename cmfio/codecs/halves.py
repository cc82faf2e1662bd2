"""f16 as the peer rounds it, and the scales made of it (cmf.md §7.0)."""

import numpy as np
from numpy.typing import NDArray

F16_LIMIT = 65520.0  # from here on a value rounds to infinity
SCALE_FLOOR = np.float32(2.0**-14)


def to_f16(values: NDArray[np.float32]) -> NDArray[np.float16]:
    """IEEE halves, except that subnormal results round ties away from zero, not to even.

    NaN becomes sign | 0x7E00. From 65520 up the result is infinite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        halves = values.astype(np.float16)
    bits = halves.view(np.uint16)
    magnitude = np.abs(values)
    small = magnitude < 2.0**-14
    if small.any():
        # Exact: scaling by 2^24 changes no digit, and neither does taking the floor off.
        steps = magnitude[small] * np.float32(2.0**24)
        whole = np.floor(steps)
        whole += steps - whole >= 0.5
        bits[small] = whole.astype(np.uint16) | (bits[small] & 0x8000)
    not_a_number = np.isnan(values)
    if not_a_number.any():
        bits[not_a_number] = bits[not_a_number] & 0x8000 | 0x7E00
    return halves


def scale16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """What is stored as f16 and divided by: `values` rounded to f16, at least 2^-14."""
    # fmax, not maximum: a NaN becomes the floor too.
    return np.fmax(to_f16(values).astype(np.float32), SCALE_FLOOR)
