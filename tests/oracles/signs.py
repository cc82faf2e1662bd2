"""Encoders of the one-bit and ternary codecs as plain loops, written from the format.

Imports nothing of cmfio.
"""

import math
import struct
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tests.oracles.packed import (
    Single,
    added,
    groups,
    half,
    in_order,
    largest,
    rounded_half,
)
from tests.oracles.quants import half_bits

F32 = NDArray[np.float32]


def floored(value: np.float32) -> int:
    """f16 bits, at least those of 2^-14."""
    return max(half_bits(Fraction(float(value))), 0x0400)


def mean(values: Sequence[np.float32]) -> np.float32:
    magnitudes = [abs(v) for v in values]
    return Single(added(magnitudes) / Single(len(values))) if values else Single(0)


def signs(bits: Sequence[bool]) -> bytes:
    return sum(bit << k for k, bit in enumerate(bits)).to_bytes(4, "little")


def q1(values: F32) -> bytes:
    tiles = b""
    for row in values:
        for group in groups(row):
            tiles += struct.pack("<H", floored(mean(group))) + signs(
                [bool(v >= 0) for v in group]
            )
    return tiles


def diffused(values: F32, outlier: float) -> bytes:
    """q1p's tiles; magnitudes from `outlier` on have no part in them."""
    tiles = b""
    for row in values:
        carry = Single(0)
        for group in groups(row):
            scale = floored(mean([v for v in group if abs(v) < outlier]))
            s, bits = half(scale), []
            for v in group:
                if abs(v) >= outlier:
                    bits.append(bool(v >= 0))
                    continue
                raised = Single(v + carry)
                bits.append(bool(raised >= 0))
                carry = Single(raised - (s if raised >= 0 else -s))
            tiles += struct.pack("<H", scale) + signs(bits)
    return tiles


def kept_count(size: int, share: float) -> int:
    wanted = float(Single(Single(size) * Single(share)))
    return min(math.floor(wanted + 0.5), size)


def q1s(values: F32) -> bytes:
    flat, count = values.reshape(-1), kept_count(values.size, 0.01)
    outlier = float(sorted(abs(flat))[flat.size - count]) if count else math.inf
    kept = [i for i, v in enumerate(flat) if abs(v) >= outlier]
    overlay = b"".join(struct.pack("<IH", i, rounded_half(float(flat[i]))) for i in kept)
    return diffused(values, outlier) + struct.pack("<I", len(kept)) + overlay


def q1t(values: F32, share: float) -> bytes:
    rows, columns = values.shape
    count = kept_count(values.size, share)
    order = sorted(range(values.size), key=lambda i: (-abs(values.flat[i]), i))
    kept = set(order[:count])
    tiles, ends, overlay = b"", [0], b""
    for r in range(rows):
        row_kept = [c for c in range(columns) if r * columns + c in kept]
        tiles += ternary_row(values[r], set(row_kept))
        for c in row_kept:
            overlay += struct.pack("<HH", c, rounded_half(float(values[r, c])))
        ends.append(ends[-1] + len(row_kept))
    return tiles + b"".join(struct.pack("<I", end) for end in ends) + overlay


def ternary_row(row: F32, kept: set[int]) -> bytes:
    scales, digits = [], []
    for g, group in enumerate(groups(row)):
        free = [k for k in range(32) if 32 * g + k not in kept]
        scale, chosen = ternary_group(group, free)
        scales.append(scale)
        digits.append(chosen)
    product = square = 0.0
    for g, group in enumerate(groups(row)):
        for k, v in enumerate(group):
            if digits[g][k]:
                product += float(scales[g]) * float(abs(v))
                square += float(scales[g]) ** 2
    if square > 1e-20:
        factor = Single(min(max(product / square, 0.5), 2.0))
        scales = [Single(s * factor) for s in scales]
    return b"".join(
        struct.pack("<H", rounded_half(float(s))) + base_3(d)
        for s, d in zip(scales, digits, strict=True)
    )


def ternary_group(
    group: Sequence[np.float32], free: Sequence[int]
) -> tuple[np.float32, list[int]]:
    average = mean([group[k] for k in free])
    half_scale = half(floored(average))
    border_b = Single(Single(0.7) * average)
    above = [float(abs(group[k])) for k in free if abs(group[k]) >= border_b]
    scale_b = half(floored(Single(in_order(above) / len(above)))) if above else half_scale
    ways = [(half_scale, Single(Single(0.5) * half_scale)), (scale_b, border_b)]
    errors = []
    for scale, border in ways:
        error = 0.0
        for k in free:
            level = float(scale) if abs(group[k]) >= border else 0.0
            error += (float(abs(group[k])) - level) ** 2
        errors.append(error)
    scale, border = ways[1 if errors[1] < errors[0] else 0]
    digits = [0] * 32
    for k in free:
        if abs(group[k]) >= border:
            digits[k] = 1 if group[k] >= 0 else 2
    return scale, digits


def base_3(digits: Sequence[int]) -> bytes:
    fives = [digits[start : start + 5] for start in range(0, 32, 5)]
    return bytes(sum(d * 3**i for i, d in enumerate(five)) for five in fives)


def q1t_exact(values: F32) -> bytes:
    tiles = b""
    for row in values:
        for group in groups(row):
            digits = [0 if v == 0 else 1 if v > 0 else 2 for v in group]
            tiles += struct.pack("<H", rounded_half(largest(group))) + base_3(digits)
    return tiles + bytes(4 * (len(values) + 1))
