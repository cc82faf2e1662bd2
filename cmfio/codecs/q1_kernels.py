"""The loops of q1, q1p and q1s: a sign a weight, in tiles of 6 bytes, signs from byte 2.

Magnitudes from `outlier` on are stored elsewhere: they leave the scale and carry alone.
"""

import numpy as np

from cmfio.codecs.base import F32, U8
from cmfio.codecs.jit import kernel


@kernel
def mean_magnitudes(groups: F32, outlier: float, means: F32) -> None:
    """The mean magnitude of each group but for outliers, 0 where all are."""
    for g in range(groups.shape[0]):
        added, count = np.float32(0), 0
        for k in range(groups.shape[1]):
            magnitude = abs(groups[g, k])
            if magnitude < outlier:
                added += magnitude
                count += 1
        means[g] = added / np.float32(count) if count else np.float32(0)


@kernel
def pack_signs(groups: F32, tiles: U8) -> None:
    """A bit a value, the first one lowest: set from -0.0 up."""
    for g in range(groups.shape[0]):
        group, record = groups[g], tiles[g, 2:]
        for j in range(record.shape[0]):
            byte = np.int32(0)
            for k in range(8):
                byte |= np.int32(group[8 * j + k] >= 0) << np.int32(k)
            record[j] = np.uint8(byte)


@kernel
def diffuse_signs(values: F32, scale: F32, outlier: float, tiles: U8) -> None:
    """As `pack_signs`, each value raised by what the row's signs so far fell short."""
    per_row = scale.shape[1]
    for r in range(values.shape[0]):
        carry = np.float32(0)
        for g in range(per_row):
            s, record = scale[r, g], tiles[r * per_row + g, 2:]
            for j in range(record.shape[0]):
                byte = np.int32(0)
                for k in range(8):
                    value = values[r, 32 * g + 8 * j + k]
                    if abs(value) >= outlier:
                        byte |= np.int32(value >= 0) << np.int32(k)
                        continue
                    raised = value + carry
                    byte |= np.int32(raised >= 0) << np.int32(k)
                    carry = raised - (s if raised >= 0 else -s)
                record[j] = np.uint8(byte)


@kernel
def unpack_signs(tiles: U8, scale: F32, groups: F32) -> None:
    """+scale where the bit is set, else -scale."""
    for g in range(groups.shape[0]):
        s, group, record = scale[g], groups[g], tiles[g, 2:]
        for j in range(record.shape[0]):
            for k in range(8):
                is_set = (record[j] >> np.uint8(k)) & np.uint8(1)
                group[8 * j + k] = s if is_set else -s
