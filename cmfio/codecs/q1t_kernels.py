"""The loops of q1t: a digit 0, 1, 2 a weight for 0, +scale, -scale, five digits a byte.

`kept` marks weights stored elsewhere: their digit is 0, and nothing else counts them.
"""

import numpy as np
from numpy.typing import NDArray

from cmfio.codecs.base import F32, U8
from cmfio.codecs.jit import kernel

F64 = NDArray[np.float64]


@kernel
def mean_magnitudes(groups: F32, kept: U8, means: F32) -> None:
    """The mean magnitude of each group; 0 where all are kept."""
    for g in range(groups.shape[0]):
        added, count = np.float32(0), 0
        for k in range(groups.shape[1]):
            if not kept[g, k]:
                added += abs(groups[g, k])
                count += 1
        means[g] = added / np.float32(max(count, 1))


@kernel
def mean_from(groups: F32, kept: U8, least: F32, means: F64) -> None:
    """The mean magnitude, in f64, of those from `least` on; 0 where there are none."""
    for g in range(groups.shape[0]):
        group, is_kept, border = groups[g], kept[g], least[g]
        added, count = np.float64(0), 0
        for k in range(group.shape[0]):
            magnitude = abs(group[k])
            counts = (magnitude >= border) & (is_kept[k] == 0)
            added += np.float64(magnitude) if counts else 0.0
            count += counts
        means[g] = added / max(count, 1)


@kernel
def choose_digits(
    groups: F32, kept: U8, least: F32, scales: F32, digits: U8, scale: F32
) -> None:
    """Per group the better of two ways: scales[g, 0] with digits from half of it on, or
    scales[g, 1] with digits from least[g] on; the first one where both err alike."""
    for g in range(groups.shape[0]):
        group, is_kept, chosen = groups[g], kept[g], digits[g]
        scale_0, scale_1, border_1 = scales[g, 0], scales[g, 1], least[g]
        border_0 = np.float32(0.5) * scale_0
        error_0, error_1 = np.float64(0), np.float64(0)
        for k in range(group.shape[0]):
            magnitude = abs(group[k])
            level_0 = scale_0 if magnitude >= border_0 else np.float32(0)
            level_1 = scale_1 if magnitude >= border_1 else np.float32(0)
            miss_0 = np.float64(magnitude) - np.float64(level_0)
            miss_1 = np.float64(magnitude) - np.float64(level_1)
            error_0 += 0.0 if is_kept[k] else miss_0 * miss_0
            error_1 += 0.0 if is_kept[k] else miss_1 * miss_1
        border = border_1 if error_1 < error_0 else border_0
        scale[g] = scale_1 if error_1 < error_0 else scale_0
        for k in range(group.shape[0]):
            is_set = (abs(group[k]) >= border) & (is_kept[k] == 0)
            chosen[k] = np.uint8(is_set) << np.uint8(group[k] < 0)


@kernel
def refit_rows(values: F32, digits: U8, scale: F32) -> None:
    """Multiplies the scales of each row by the factor that fits its nonzero digits best.

    Least squares in f64, between 0.5 and 2.
    """
    for r in range(values.shape[0]):
        product, square = np.float64(0), np.float64(0)
        for g in range(scale.shape[1]):
            s = np.float64(scale[r, g])
            for k in range(32 * g, 32 * g + 32):
                level = s if digits[r, k] else 0.0
                product += level * np.float64(abs(values[r, k]))
                square += level * level
        if square > 1e-20:
            factor = np.float32(min(max(product / square, 0.5), 2.0))
            for g in range(scale.shape[1]):
                scale[r, g] *= factor


@kernel
def pack_digits(digits: U8, tiles: U8) -> None:
    """Five digits a byte from byte 2 on, the first one lowest; the last byte holds two."""
    for g in range(digits.shape[0]):
        for j in range(7):
            byte = 0
            for k in range(min(5 * j + 4, 31), 5 * j - 1, -1):
                byte = 3 * byte + digits[g, k]
            tiles[g, 2 + j] = byte


@kernel
def unpack_digits(tiles: U8, scale: F32, groups: F32) -> None:
    """0, +scale or -scale."""
    level = np.zeros(3, np.float32)
    for g in range(groups.shape[0]):
        level[1], level[2] = scale[g], -scale[g]
        for j in range(7):
            byte = np.int64(tiles[g, 2 + j])
            for k in range(5 * j, min(5 * j + 5, 32)):
                groups[g, k] = level[byte % 3]
                byte //= 3
