"""The loops of q4tp and q2tp.

A group's levels depend on `shift`, `low` and `high` alone: 0, -8, 7 and 1.5, 0, 3. All else
of the search is the same: adding and taking off a shift of 0 changes no bit of a result.
"""

import numpy as np

from cmfio.codecs.base import F32, U8
from cmfio.codecs.jit import kernel

LANES = 64  # groups side by side: one group's error is a chain of 32 dependent additions
Reach = tuple[int, int, int]


@kernel
def _add_errors(columns: F32, scale: F32, inverse: F32, grid: F32, error: F32) -> None:
    """Adds up the squared errors of groups side by side [32, lanes], each in its order."""
    shift, low, high = grid[0], grid[1], grid[2]
    for k in range(columns.shape[0]):
        values = columns[k]
        for i in range(error.shape[0]):
            level = min(max(np.rint(values[i] * inverse[i] + shift), low), high)
            miss = values[i] - (level - shift) * scale[i]
            error[i] += miss * miss


@kernel
def search_codes(
    groups: F32, ladders: F32, codes: U8, errors: F32, reach: Reach, grid: F32
) -> None:
    """Replaces each nominal code by the one near it whose squared error is least.

    Codes from nominal + reach[0] to nominal + reach[1] are tried upwards, none below
    reach[2]; the first of equals stays. `grid` is (shift, low, high). A code at the border
    is tried twice, which changes nothing.
    """
    per_row = max(groups.shape[0] // max(ladders.shape[0], 1), 1)
    columns = np.zeros((groups.shape[1], LANES), np.float32)
    scale, tried = np.ones(LANES, np.float32), np.zeros(LANES, np.uint8)
    rows = np.zeros(LANES, np.int64)
    for start in range(0, groups.shape[0], LANES):
        part, least = groups[start : start + LANES], errors[start : start + LANES]
        found = codes[start : start + LANES]
        nominal = found.copy()
        for i in range(part.shape[0]):
            rows[i] = (start + i) // per_row
            for k in range(part.shape[1]):
                columns[k, i] = part[i, k]
        least[:] = np.inf
        for step in range(reach[0], reach[1] + 1):
            for i in range(nominal.shape[0]):
                tried[i] = min(max(int(nominal[i]) + step, reach[2]), 31)
                scale[i] = ladders[rows[i], tried[i]]
            error = np.zeros(LANES, np.float32)
            _add_errors(columns, scale, np.float32(1) / scale, grid, error)
            for i in range(found.shape[0]):
                if error[i] < least[i]:
                    least[i] = error[i]
                    found[i] = tried[i]


@kernel
def pack_4(groups: F32, inverse: F32, levels: U8) -> None:
    """values · inverse, half to even, plus 8; the even ones in the low nibbles."""
    low, high = np.float32(-8), np.float32(7)
    for g in range(groups.shape[0]):
        s, group, record = inverse[g], groups[g], levels[g]
        for k in range(record.shape[0]):
            even = min(max(np.rint(group[2 * k] * s), low), high)
            odd = min(max(np.rint(group[2 * k + 1] * s), low), high)
            record[k] = np.uint8((np.int32(even) + 8) | ((np.int32(odd) + 8) << 4))


@kernel
def pack_2(groups: F32, inverse: F32, levels: U8) -> None:
    """values · inverse + 1.5, half to even, into 0..3; four a byte, the first lowest."""
    shift, low, high = np.float32(1.5), np.float32(0), np.float32(3)
    for g in range(groups.shape[0]):
        s, group, record = inverse[g], groups[g], levels[g]
        for k in range(record.shape[0]):
            byte = np.int32(0)
            for j in range(4):
                level = min(max(np.rint(group[4 * k + j] * s + shift), low), high)
                byte |= np.int32(level) << np.int32(2 * j)
            record[k] = np.uint8(byte)


@kernel
def unpack_4(levels: U8, scale: F32, groups: F32) -> None:
    """(nibble - 8) times the group's scale."""
    for g in range(groups.shape[0]):
        s, group, record = scale[g], groups[g], levels[g]
        for k in range(record.shape[0]):
            pair = record[k]
            group[2 * k] = (np.float32(pair & np.uint8(15)) - np.float32(8)) * s
            group[2 * k + 1] = (np.float32(pair >> np.uint8(4)) - np.float32(8)) * s


@kernel
def unpack_2(levels: U8, scale: F32, groups: F32) -> None:
    """(level - 1.5) times the group's scale."""
    for g in range(groups.shape[0]):
        s, group, record = scale[g], groups[g], levels[g]
        for k in range(record.shape[0]):
            byte = record[k]
            for j in range(4):
                level = np.float32((byte >> np.uint8(2 * j)) & np.uint8(3))
                group[4 * k + j] = (level - np.float32(1.5)) * s


@kernel
def pack_codes(codes: U8, packed: U8) -> None:
    """Five bits a code, the lowest first; each row begins on a byte and ends in zeros."""
    for r in range(codes.shape[0]):
        held, bits, place = np.uint32(0), 0, 0
        for g in range(codes.shape[1]):
            held |= np.uint32(codes[r, g]) << np.uint32(bits)
            bits += 5
            if bits >= 8:
                packed[r, place] = np.uint8(held & np.uint32(255))
                held >>= np.uint32(8)
                bits -= 8
                place += 1
        if bits:
            packed[r, place] = np.uint8(held)


@kernel
def look_up(packed: U8, ladders: F32, scale: F32) -> None:
    """The scale of each group: its row's ladder at its 5-bit code."""
    for r in range(scale.shape[0]):
        held, bits, place = np.uint32(0), 0, 0
        for g in range(scale.shape[1]):
            if bits < 5:
                held |= np.uint32(packed[r, place]) << np.uint32(bits)
                bits += 8
                place += 1
            scale[r, g] = ladders[r, held & np.uint32(31)]
            held >>= np.uint32(5)
            bits -= 5
