"""A matrix as a PNG: cividis, which reads the same under every colour vision."""

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.generic]

# Ten points of cividis (Nuñez, Anderton, Renslow 2018), dark to light.
CIVIDIS = (
    (0, 34, 78), (18, 53, 112), (59, 73, 108), (87, 93, 109), (112, 113, 115),
    (138, 134, 120), (165, 156, 116), (195, 179, 105), (225, 204, 85), (254, 232, 56),
)  # fmt: skip
NOT_FINITE = (222, 45, 120)  # the last of the palette
WIDEST, TALLEST = 1024, 512  # pixels
SAMPLED_ROWS = 128  # that a scale is fitted to


@dataclass(frozen=True)
class Scale:
    """Brightness is log10 |value|, from `decades` below `top` up to it, and no further."""

    top: float
    decades: float

    @property
    def bottom(self) -> float:
        """What is smaller is as dark as it gets."""
        return float(self.top / 10**self.decades)


def scale_of(values_RC: Matrix) -> Scale:
    """From a tenth of the median channel's |value| to twice the largest channel's.

    A channel counts by its median over a few rows, so that a row that towers over the rest
    is merely as bright as it gets. 2 to 8 decades.
    """
    each = max(1, len(values_RC) // SAMPLED_ROWS)
    sample = _size(values_RC[::each])
    sample = sample[sample.any(axis=1)]
    by_channel = np.ascontiguousarray(sample.T)
    medians = np.median(by_channel, axis=1) if len(sample) else np.zeros(0)
    medians = medians[np.isfinite(medians) & (medians > 0)]
    if not medians.size:
        finite = sample[np.isfinite(sample)]
        return Scale(float(finite.max()) if finite.any() else 1.0, 2.0)
    top, typical = 2.0 * float(medians.max()), float(np.median(medians))
    return Scale(top, float(np.clip(np.ceil(np.log10(top / typical)) + 1, 2, 8)))


def heat_png(values_RC: Matrix, scale: Scale) -> bytes:
    """Rows down, channels across, at most 1024 by 512 pixels.

    A pixel that stands for several values shows the largest |value|, so an outlier channel
    stays a line. What is not finite has a colour of its own.
    """
    pooled = _pooled(values_RC)
    is_finite = np.isfinite(pooled)
    with np.errstate(divide="ignore"):
        decades = np.log10(np.where(is_finite, pooled, 1.0) / scale.top)
    level = np.clip(1 + decades / scale.decades, 0, 1) * 254
    return _png(np.where(is_finite, np.round(level), 255).astype(np.uint8))


def _size(values_RC: Matrix) -> npt.NDArray[np.floating]:
    """|value| as f32 (f64 stays), NaN as infinity."""
    kind = np.float64 if values_RC.dtype.itemsize > 4 else np.float32
    size: npt.NDArray[np.floating] = np.abs(values_RC.astype(kind))
    size[np.isnan(size)] = np.inf
    return size


def _pooled(values_RC: Matrix) -> npt.NDArray[np.float64]:
    """Largest |value| of blocks, so that neither side exceeds its limit.

    A block's rows at a time: they stay in the cache, the whole would not.
    """
    rows, columns = values_RC.shape
    tall, wide = -(-rows // TALLEST), -(-columns // WIDEST)
    lines = [
        _size(values_RC[begin : begin + tall]).max(axis=0) for begin in range(0, rows, tall)
    ]
    by_row = np.stack(lines)
    starts = np.arange(0, columns, wide)
    if wide == 1:
        return by_row.astype(np.float64)
    return np.maximum.reduceat(by_row, starts, axis=1).astype(np.float64)


def _palette() -> bytes:
    places = np.linspace(0, len(CIVIDIS) - 1, 255)
    channels = [
        np.interp(places, range(len(CIVIDIS)), one) for one in zip(*CIVIDIS, strict=True)
    ]
    colours = np.round(np.stack(channels, 1)).astype(np.uint8)
    return colours.tobytes() + bytes(NOT_FINITE)


def _png(level_RC: npt.NDArray[np.uint8]) -> bytes:
    height, width = level_RC.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), level_RC], axis=1)  # no filter
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _part(b"PLTE", _palette()),
            _part(b"IDAT", zlib.compress(rows.tobytes(), 1)),
            _part(b"IEND", b""),
        )
    )


def _part(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
