"""Plain-loop encoders of q8_row and q4_tiled, exact where it counts.

Imports nothing of cmfio. Halves are rounded from the exact rational, not by numpy.
"""

import struct
from collections.abc import Sequence
from fractions import Fraction


def half_bits(value: Fraction) -> int:
    """f16 bits of 0 <= value < 65520: nearest even, subnormal ties away from zero."""
    if value < Fraction(1, 2**14):
        steps = value * 2**24
        whole = steps.numerator // steps.denominator
        return whole + (steps - whole >= Fraction(1, 2))
    exponent = 0
    while value >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while value < Fraction(2) ** exponent:
        exponent -= 1
    steps = (value / Fraction(2) ** exponent - 1) * 1024
    return ((exponent + 15) << 10) + round(steps)


def half_value(bits: int) -> Fraction:
    """The exact value of non-negative f16 bits."""
    exponent, mantissa = bits >> 10, bits & 1023
    if exponent == 0:
        return Fraction(mantissa, 2**24)
    return (1 + Fraction(mantissa, 1024)) * Fraction(2) ** (exponent - 15)


def single(value: float) -> float:
    """`value` rounded to f32."""
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    return float(rounded)


def scale_bits(largest: float, steps: int) -> int:
    """The stored scale of values up to `largest`: rounded to f16, at least 2^-14."""
    return max(half_bits(Fraction(single(largest / steps))), 0x0400)


def quantised(value: float, scale: Fraction, low: int, high: int) -> int:
    """The step nearest to value / scale (rounded to f32 first), ties to even."""
    return min(max(round(single(value / float(scale))), low), high)


def q8_row(rows: Sequence[Sequence[float]]) -> bytes:
    """int8 of all rows, then the f16 scale of each."""
    scales = [scale_bits(max((abs(v) for v in row), default=0.0), 127) for row in rows]
    steps = bytearray()
    for row, bits in zip(rows, scales, strict=True):
        for value in row:
            steps += struct.pack("<b", quantised(value, half_value(bits), -128, 127))
    return bytes(steps) + struct.pack(f"<{len(scales)}H", *scales)


def q4_tiled(values: Sequence[float]) -> bytes:
    """Groups of 32: f16 scale, then two nibbles a byte, the earlier value low."""
    tiles = bytearray()
    for start in range(0, len(values), 32):
        group = values[start : start + 32]
        bits = scale_bits(max(abs(v) for v in group), 7)
        nibbles = [quantised(v, half_value(bits), -8, 7) + 8 for v in group]
        tiles += struct.pack("<H", bits)
        tiles += bytes(nibbles[2 * k] | nibbles[2 * k + 1] << 4 for k in range(16))
    return bytes(tiles)
