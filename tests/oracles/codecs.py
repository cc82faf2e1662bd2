"""Every codec's oracle: its bytes by plain loops, and how far values may come back.

Imports nothing of cmfio. A codec without a line in `ORACLES` fails the tests.
"""

import functools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.oracles import packed, quants, signs

F32 = NDArray[np.float32]


@dataclass(frozen=True)
class Oracle:
    """`encode` gives a matrix's payload. `slack` says for each of the values how far it
    may be from what it was, from the scales in the payload, which it reads by itself.

    `is_ternary`: only matrices of 0, s and -s in each 32 can be stored.
    """

    encode: Callable[[F32], bytes]
    slack: Callable[[bytes, F32], F32]
    is_ternary: bool = False


def halves(payload: bytes, first: int, *shape: int) -> F32:
    count = int(np.prod(shape))
    return np.frombuffer(payload, "<f2", count, first).astype(np.float32).reshape(shape)


def by_group(scales: F32) -> F32:
    return np.repeat(scales, 32, axis=-1)


def rounded(values: F32, bits: int, floor: float = 0.0) -> F32:
    """Half a step of floats of so many significant bits, whose smallest step is `floor`."""
    return np.maximum(np.abs(values) * np.float32(2.0**-bits), np.float32(floor / 2))


def half_a_step(step: F32, values: F32) -> F32:
    """Beyond the outermost level only where the scale was rounded down to f16 (2^-11),
    and a few roundings of f32 (2^-22)."""
    beyond: F32 = np.abs(values) * np.float32(2.0**-11 + 2.0**-22)
    slack: F32 = np.float32(0.5) * step + beyond
    return slack


def bf16(values: F32) -> bytes:
    words = []
    for bits in values.reshape(-1).view(np.uint32).tolist():
        upper, rest = divmod(bits, 1 << 16)
        words.append(upper + (rest > 0x8000 or (rest == 0x8000 and upper % 2 == 1)))
    return struct.pack(f"<{len(words)}H", *words)


def q8_row_slack(payload: bytes, values: F32) -> F32:
    return half_a_step(halves(payload, values.size, len(values), 1), values)


def q8_2f_slack(payload: bytes, values: F32) -> F32:
    (rows, columns), n = values.shape, values.size
    row = halves(payload, n, rows, 1)
    return half_a_step(row * halves(payload, n + 2 * rows, 1, columns), values)


def q4_block_slack(payload: bytes, values: F32) -> F32:
    groups = -(-values.size // 32)
    step = by_group(halves(payload, groups * 16, groups))[: values.size]
    return half_a_step(step.reshape(values.shape), values)


def tile_scales(payload: bytes, values: F32, tile: int) -> F32:
    """The f16 that each tile of 32 begins with, for each value."""
    rows, groups = len(values), values.shape[1] // 32
    tiles = np.frombuffer(payload, np.uint8, rows * groups * tile).reshape(-1, tile)
    return by_group(halves(tiles[:, :2].tobytes(), 0, rows, groups))


def q4_tiled_slack(payload: bytes, values: F32) -> F32:
    return half_a_step(tile_scales(payload, values, 18), values)


def vbit_slack(payload: bytes, values: F32) -> F32:
    rows, columns = values.shape
    return half_a_step(by_group(halves(payload, rows, rows, columns // 32)), values)


def two_plane_slack(payload: bytes, values: F32, top: float, group_bytes: int) -> F32:
    """Half a step to the nearest level; what is clipped sits on the outermost one.

    With 8 bytes a group (q2tp) code 0 means zero, and the rungs come after it.
    """
    rows, groups = len(values), values.shape[1] // 32
    at = rows * groups * group_bytes
    params = struct.unpack_from(f"<{2 * rows}H", payload, at)
    row_bytes = -(-5 * groups // 8)
    scale = np.empty((rows, groups), np.float32)
    for r in range(rows):
        rungs = packed.rungs(*params[2 * r : 2 * r + 2])
        ladder = [np.float32(0), *rungs] if group_bytes == 8 else rungs
        start = at + 4 * rows + r * row_bytes
        codes = int.from_bytes(payload[start : start + row_bytes], "little")
        scale[r] = [ladder[codes >> 5 * g & 31] for g in range(groups)]
    step = by_group(scale)
    clipped = np.abs(values) - np.float32(top) * step
    slack: F32 = np.maximum(np.float32(0.5) * step, clipped) * np.float32(1 + 2.0**-20)
    return slack


def sign_slack(payload: bytes, values: F32) -> F32:
    """Own sign, scale of the group."""
    scale = tile_scales(payload, values, 6)
    return np.maximum(np.abs(values), scale) * np.float32(1 + 2.0**-20)


def diffused_slack(payload: bytes, values: F32) -> F32:
    """The sign may be the other one."""
    scale = tile_scales(payload, values, 6)
    return (np.abs(values) + scale) * np.float32(1 + 2.0**-20)


def q1s_slack(payload: bytes, values: F32) -> F32:
    slack = diffused_slack(payload, values)
    entries = np.frombuffer(payload[values.size // 32 * 6 + 4 :], "<u4, <f2")
    kept = entries["f0"]
    slack.reshape(-1)[kept] = rounded(values.reshape(-1)[kept], 11, 2.0**-24)
    return slack


def q1t_slack(payload: bytes, values: F32) -> F32:
    rows = len(values)
    scale = tile_scales(payload, values, 9)
    slack = np.maximum(np.abs(values), scale) * np.float32(1 + 2.0**-20)
    at = values.size // 32 * 9
    ends = struct.unpack_from(f"<{rows + 1}I", payload, at)
    entries = np.frombuffer(payload[at + 4 * (rows + 1) :], "<u2, <f2")
    for r in range(rows):
        kept = entries["f0"][ends[r] : ends[r + 1]]
        slack[r, kept] = rounded(values[r, kept], 11, 2.0**-24)
    return slack


ORACLES: Mapping[str, Oracle] = {
    "f32": Oracle(
        lambda values: struct.pack(f"<{values.size}f", *values.reshape(-1).tolist()),
        lambda _payload, values: np.zeros_like(values),
    ),
    "f16": Oracle(
        lambda values: packed.halves(map(packed.rounded_half, values.reshape(-1).tolist())),
        lambda _payload, values: rounded(values, 11, 2.0**-24),
    ),
    "bf16": Oracle(bf16, lambda _payload, values: rounded(values, 8, 2.0**-133)),
    "q8_row": Oracle(lambda values: quants.q8_row(values.tolist()), q8_row_slack),
    "q8_2f": Oracle(packed.q8_2f, q8_2f_slack),
    "q4_block": Oracle(packed.q4_block, q4_block_slack),
    "q4_tiled": Oracle(
        lambda values: quants.q4_tiled(values.reshape(-1).tolist()), q4_tiled_slack
    ),
    "q4tp": Oracle(packed.q4tp, functools.partial(two_plane_slack, top=7, group_bytes=16)),
    "q2tp": Oracle(packed.q2tp, functools.partial(two_plane_slack, top=1.5, group_bytes=8)),
    "vbit": Oracle(functools.partial(packed.vbit, with_offsets=False), vbit_slack),
    "vbit_ro": Oracle(functools.partial(packed.vbit, with_offsets=True), vbit_slack),
    "q1": Oracle(signs.q1, sign_slack),
    "q1p": Oracle(functools.partial(signs.diffused, outlier=float("inf")), diffused_slack),
    "q1s": Oracle(signs.q1s, q1s_slack),
    "q1t": Oracle(functools.partial(signs.q1t, share=0.0), q1t_slack),
    "q1t_overlay": Oracle(functools.partial(signs.q1t, share=0.01), q1t_slack),
    "q1t_exact": Oracle(
        signs.q1t_exact, lambda _payload, values: rounded(values, 11), is_ternary=True
    ),
}


def is_ternary(codec: str) -> bool:
    """Whether only ternary matrices can be stored; what has no oracle is told elsewhere."""
    return codec in ORACLES and ORACLES[codec].is_ternary
