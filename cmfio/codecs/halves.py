"""f16 as the peer rounds it, and the scales made of it.

In whole numbers: numpy's own conversion is slower, and differs in one place.
"""

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F16 = NDArray[np.float16]

F16_LIMIT = 65520.0  # from here on a value rounds to infinity
SCALE_FLOOR = np.float32(2.0**-14)  # the smallest normal half

_SIGN, _INFINITY, _NAN = np.uint16(0x8000), np.uint32(0x7C00), np.uint16(0x7E00)
# The exponents of f32 and f16 count from 127 and 15: 112 apart.
_REBIAS = np.uint32(112 << 10)
_UNBIAS = np.float32(2.0**112)


def to_f16(values: F32) -> F16:
    """IEEE halves, except that subnormal results round ties away from zero, not to even.

    NaN becomes sign | 0x7E00. From 65520 up the result is infinite.
    """
    flat = np.ascontiguousarray(values).reshape(-1)
    bits = flat.view(np.uint32)
    magnitude = bits & np.uint32(0x7FFF_FFFF)
    halves = np.minimum(_nearest_even(magnitude) - _REBIAS, _INFINITY).astype(np.uint16)
    small = np.flatnonzero(magnitude < SCALE_FLOOR.view(np.uint32))
    if len(small):
        halves[small] = _subnormal(flat[small])
    if magnitude.max(initial=0) > 0x7F80_0000:
        halves[magnitude > np.uint32(0x7F80_0000)] = _NAN
    halves |= (bits >> np.uint32(16)).astype(np.uint16) & _SIGN
    rounded: F16 = halves.view(np.float16).reshape(values.shape)
    return rounded


def from_f16(halves: F16, out: F32 | None = None) -> F32:
    """The exact values, in `out` if that is given."""
    signed = np.ascontiguousarray(halves).view(np.int16).reshape(halves.shape)
    shifted = signed.astype(np.int32)
    shifted <<= 13
    # The sign came along as bits 28 to 31; only the last is its place.
    shifted &= np.int32(0x8FFF_E000 - (1 << 32))
    values = np.multiply(shifted.view(np.float32), _UNBIAS, out=out)
    special = signed & np.int16(0x7C00) == np.int16(0x7C00)
    if special.any():
        values[special] = halves[special]
    return values


def scale16(values: F32) -> F32:
    """What is stored as f16 and divided by: `values` rounded to f16, at least 2^-14."""
    # fmax, not maximum: a NaN becomes the floor too. From the floor on halves are normal.
    bits = np.fmax(values, SCALE_FLOOR).view(np.uint32)
    rounded = (_nearest_even(bits) << np.uint32(13)).view(np.float32)
    rounded[rounded > 65504] = np.inf
    return rounded


def scale_halves(scale: F32) -> F16:
    """How the results of `scale16` are stored; exact, and quicker than `to_f16`."""
    halves = (scale.view(np.uint32) >> np.uint32(13)) - _REBIAS
    stored: F16 = np.minimum(halves, _INFINITY).astype(np.uint16).view(np.float16)
    return stored


def _nearest_even(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The upper 19 of 32 bits, rounded."""
    rounded = bits >> np.uint32(13)
    rounded &= np.uint32(1)
    rounded += bits
    rounded += np.uint32(0xFFF)
    rounded >>= np.uint32(13)
    return rounded


def _subnormal(values: F32) -> NDArray[np.uint16]:
    # Exact: scaling by 2^24 changes no digit, and neither does taking the floor off.
    steps = np.abs(values) * np.float32(2.0**24)
    whole = np.floor(steps)
    whole += steps - whole >= 0.5
    return whole.astype(np.uint16)
