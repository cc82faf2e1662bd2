"""The loops of q4_block and q4_tiled; a group's nibbles are in a record from `first`."""

import numpy as np

from cmfio.codecs.base import F32, U8
from cmfio.codecs.jit import kernel

LOW, HIGH = np.float32(-8), np.float32(7)


@kernel
def pack_nibbles(groups: F32, scale: F32, records: U8, first: int) -> None:
    """values / scale, half to even, plus 8: the even ones low, the odd ones high."""
    for g in range(groups.shape[0]):
        s, group, record = scale[g], groups[g], records[g, first:]
        for k in range(record.shape[0]):
            even = min(max(np.rint(group[2 * k] / s), LOW), HIGH)
            odd = min(max(np.rint(group[2 * k + 1] / s), LOW), HIGH)
            record[k] = np.uint8((np.int32(even) + 8) | ((np.int32(odd) + 8) << 4))


@kernel
def unpack_nibbles(records: U8, first: int, scale: F32, groups: F32) -> None:
    """(nibble - 8) times the group's scale."""
    for g in range(groups.shape[0]):
        s, group, record = scale[g], groups[g], records[g, first:]
        for k in range(record.shape[0]):
            pair = record[k]
            group[2 * k] = (np.float32(pair & np.uint8(15)) - np.float32(8)) * s
            group[2 * k + 1] = (np.float32(pair >> np.uint8(4)) - np.float32(8)) * s
