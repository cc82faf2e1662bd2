"""Encoders of the packed codecs as plain loops over f32 scalars, written from the format.

Imports nothing of cmfio. Slow: for matrices of a few hundred values.
"""

import json
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.oracles.quants import half_bits, half_value, scale_bits

F32 = NDArray[np.float32]
Single = np.float32
LIBM = json.loads((Path(__file__).parents[1] / "peers/cmf/libm.json").read_text("utf-8"))


def rounded_half(value: float) -> int:
    """Signed f16 bits."""
    sign = 0x8000 if math.copysign(1, value) < 0 else 0
    return sign | half_bits(Fraction(abs(float(value))))


def half(bits: int) -> np.float32:
    """The value of signed f16 bits."""
    value = Single(float(half_value(bits & 0x7FFF)))
    return -value if bits & 0x8000 else value


def halves(bits: Iterable[int]) -> bytes:
    """f16 bits, little-endian."""
    return b"".join(struct.pack("<H", one) for one in bits)


def excepted(table: str, bits: int, otherwise: Callable[[float], float]) -> np.float32:
    """A function of libm at a half: the peer's own result where it isn't f64's rounded."""
    for argument, result in LIBM[table]:
        if int(argument, 16) == bits:
            return np.uint32(int(result, 16)).view(np.float32)
    return Single(otherwise(float(half(bits))))


def added(values: Iterable[np.float32]) -> np.float32:
    """f32, one after the other."""
    total = Single(0)
    for value in values:
        total = Single(total + value)
    return total


def in_order(values: Iterable[float]) -> float:
    """f64, one after the other; Python's own sum compensates from 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total


def clamped(value: np.float32, low: int, high: int) -> int:
    """Rounded half to even, into low..high."""
    return min(max(round(float(value)), low), high)


def largest(values: Sequence[np.float32]) -> float:
    return float(max((abs(value) for value in values), default=Single(0)))


def groups(row: F32) -> list[list[np.float32]]:
    return [list(row[start : start + 32]) for start in range(0, len(row), 32)]


def nibbles(levels: Sequence[int]) -> bytes:
    return bytes(levels[k] | levels[k + 1] << 4 for k in range(0, len(levels), 2))


def q8_2f(values: F32) -> bytes:
    """Steps, row scales, column scales."""
    rows, columns = values.shape
    column = []
    for c in range(columns):
        blocks = []
        for top in range(0, rows, 256):
            squares = 0.0
            for value in values[top : top + 256, c]:
                squares += float(value) * float(value)
            blocks.append(squares)
        mean = in_order(blocks) / rows
        rms = Single(max(math.sqrt(mean), 1e-12))
        column.append(max(half_bits(Fraction(float(rms))), 0x0400))
    steps, row_scales = bytearray(), []
    for row in values:
        scaled = [Single(v / half(bits)) for v, bits in zip(row, column, strict=True)]
        bits = scale_bits(max(largest(scaled), float(Single(1e-12))), 127)
        row_scales.append(bits)
        for t in scaled:
            steps += struct.pack("<b", clamped(Single(t / half(bits)), -127, 127))
    return bytes(steps) + halves(row_scales) + halves(column)


def q4_block(values: F32) -> bytes:
    """Nibbles of all groups, then all scales; flat, filled up with zeros."""
    flat = [*values.reshape(-1), *([Single(0)] * (-values.size % 32))]
    packed, scales = b"", []
    for start in range(0, len(flat), 32):
        group = flat[start : start + 32]
        bits = scale_bits(largest(group), 7)
        scales.append(bits)
        packed += nibbles([clamped(Single(v / half(bits)), -8, 7) + 8 for v in group])
    return packed + halves(scales)


def rungs(low_bits: int, step_bits: int) -> list[np.float32]:
    """The 32 scales of a row, from its two halves."""
    ladder = [excepted("exp2_of_half", low_bits, lambda x: 2.0**x)]
    ratio = excepted("exp2_of_half", step_bits, lambda x: 2.0**x)
    while len(ladder) < 32:
        ladder.append(Single(ladder[-1] * ratio))
    return ladder


class Ladder:
    """One row of q4tp or q2tp: its groups, the ends of their scales, and its rungs."""

    def __init__(self, row: F32, top_level: float, steps: int) -> None:
        self.groups, self.steps = groups(row), steps
        self.alive = [largest(group) > 0 for group in self.groups]
        self.log2 = [
            excepted("log2_of_half", self._scale(group, top_level), math.log2)
            for group in self.groups
        ]
        live = [lg for lg, alive in zip(self.log2, self.alive, strict=True) if alive]
        live = live or self.log2[:1]
        self.low_bits, self.high = rounded_half(float(min(live))), max(live)
        self.low = half(self.low_bits)

    @staticmethod
    def _scale(group: list[np.float32], top_level: float) -> int:
        value = Single(Single(largest(group)) / Single(top_level))
        return max(half_bits(Fraction(float(value))), 0x0400)

    def step_to(self, top: np.float32) -> int:
        span = max(Single(top - self.low), Single(0))
        bits = rounded_half(float(Single(span / Single(self.steps))))
        for _ in range(64):
            step = half(bits)
            if step > 0 and self.low + Single(Single(self.steps) * step) >= top:
                break
            bits += 1
        return bits

    def rungs(self, step_bits: int) -> list[np.float32]:
        return rungs(self.low_bits, step_bits)

    def nominal(self, g: int, step_bits: int) -> int:
        ideal = Single(Single(self.log2[g] - self.low) / half(step_bits))
        return clamped(ideal, 0, self.steps)


def squared_error(
    group: Sequence[np.float32], scale: np.float32, level: Callable[[np.float32], float]
) -> np.float32:
    inverse = Single(Single(1) / scale)
    misses = (Single(v - Single(Single(level(Single(v * inverse))) * scale)) for v in group)
    return added(Single(miss * miss) for miss in misses)


def best_code(
    group: Sequence[np.float32],
    ladder: Sequence[np.float32],
    codes: range,
    level: Callable[[np.float32], float],
) -> tuple[int, np.float32]:
    code, least = codes[0], Single(np.inf)
    for tried in codes:
        error = squared_error(group, ladder[tried], level)
        if error < least:
            code, least = tried, error
    return code, least


def five_bits(codes: Sequence[int]) -> bytes:
    whole = sum(code << (5 * i) for i, code in enumerate(codes))
    return whole.to_bytes(-(-5 * len(codes) // 8), "little")


def level_4(scaled: np.float32) -> float:
    return clamped(scaled, -8, 7)


def level_2(scaled: np.float32) -> float:
    return clamped(Single(scaled + Single(1.5)), 0, 3) - 1.5


def q4tp(values: F32) -> bytes:
    levels, params, codes = b"", b"", b""
    for row in values:
        ladder = Ladder(row, 7, 31)
        step = ladder.step_to(ladder.high)
        rungs, row_codes = ladder.rungs(step), []
        for g, group in enumerate(ladder.groups):
            code = 0
            if ladder.alive[g]:
                near = ladder.nominal(g, step)
                tried = range(max(near - 2, 0), min(near + 1, 31) + 1)
                code, _ = best_code(group, rungs, tried, level_4)
            row_codes.append(code)
            inverse = Single(Single(1) / rungs[code])
            levels += nibbles([int(level_4(Single(v * inverse))) + 8 for v in group])
        params += halves([ladder.low_bits, step])
        codes += five_bits(row_codes)
    return levels + params + codes


def q2tp(values: F32) -> bytes:
    levels, params, codes = b"", b"", b""
    for row in values:
        ladder = Ladder(row, 1.5, 30)
        step = ladder.step_to(best_top(ladder))
        rungs, row_codes = [Single(0), *ladder.rungs(step)], []
        for g, group in enumerate(ladder.groups):
            code = 0
            if ladder.alive[g]:
                code, _ = best_code(group, rungs, codes_2(ladder, g, step, 1), level_2)
            row_codes.append(code)
            inverse = Single(Single(1) / rungs[code]) if code else Single(0)
            stored = [int(level_2(Single(v * inverse)) + 1.5) for v in group]
            levels += bytes(
                sum(stored[k + j] << (2 * j) for j in range(4)) for k in range(0, 32, 4)
            )
        params += halves([ladder.low_bits, step])
        codes += five_bits(row_codes)
    return levels + params + codes


def codes_2(ladder: Ladder, g: int, step: int, reach: int) -> range:
    near = 1 + ladder.nominal(g, step)
    return range(max(near - 2, 1), min(near + reach, 31) + 1)


def best_top(ladder: Ladder) -> np.float32:
    best, least = ladder.high, Single(np.inf)
    span = Single(ladder.high - ladder.low)
    if span <= 0:
        return best
    for share in (1.0, 0.9, 0.8, 0.7):
        top = Single(ladder.low + Single(span * Single(share)))
        step = ladder.step_to(top)
        rungs = [Single(0), *ladder.rungs(step)]
        total = added(
            best_code(group, rungs, codes_2(ladder, g, step, 2), level_2)[1]
            for g, group in enumerate(ladder.groups)
            if ladder.alive[g]
        )
        if total < least:
            best, least = top, total
    return best


def vbit(values: F32, *, with_offsets: bool) -> bytes:
    log2 = [
        Single(math.log2(max(Single(largest(list(row))), Single(1e-12)))) for row in values
    ]
    average = Single(added(log2) / Single(len(log2)))
    widths, scales, rows = [], [], []
    for row, lg in zip(values, log2, strict=True):
        wanted = Single(Single(4.25) + Single(lg - average))
        width = min((3, 4, 5, 6, 8), key=lambda b: (abs(Single(b) - wanted), b))
        centre, text = 2 ** (width - 1) - 1, ""
        for group in groups(row):
            bits = scale_bits(largest(group), centre)
            scales.append(bits)
            for v in group:
                step = round(float(Single(v / half(bits)))) + centre
                text += format(min(max(step, 0), 2**width - 1), f"0{width}b")
        widths.append(width)
        rows.append(int(text, 2).to_bytes(len(text) // 8, "big"))
    ends = np.cumsum([0, *map(len, rows)]).astype("<u4").tobytes() if with_offsets else b""
    return bytes(widths) + halves(scales) + ends + b"".join(rows)
