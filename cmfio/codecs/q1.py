"""q1 and q1s: a sign a weight and a scale for 32 of them."""

from dataclasses import dataclass

import numpy as np

from cmfio.codecs.base import F32, GROUP, U8, TiledCodec
from cmfio.codecs.blocks import block_height, in_blocks, unpack_groups
from cmfio.codecs.halves import F16_LIMIT, from_f16, scale16, scale_halves, to_f16
from cmfio.codecs.outliers import from_magnitude, kept_count, nth_smallest
from cmfio.dtypes import Shape, element_count
from cmfio.errors import BoundsError

TILE_BYTES = 2 + GROUP // 8
COUNT_BYTES = 4
ENTRY = np.dtype([("index", "<u4"), ("value", "<f2")])
KEPT_SHARE = 0.01


@dataclass(frozen=True)
class Q1(TiledCodec):
    """Tiles: f16 scale | 32 signs, the first one lowest; +scale or -scale.

    `diffuses`: a sign makes up for what the row's signs before it fell short (q1p).
    """

    matrices_only = False  # written as such, but read whatever the shape

    name: str = "q1"
    dtype: str = "q1"
    what: str = "a sign, a scale for 32 weights"
    limit: float = F16_LIMIT
    diffuses: bool = False

    def planes(self, columns: int) -> tuple[int, ...] | None:
        """The tiles."""
        groups, rest = divmod(columns, GROUP)
        return None if rest else (groups * TILE_BYTES,)

    def packed(self, values: F32, threads: int) -> U8:
        """Scale = mean magnitude as f16."""
        return _tiles(values, float("inf"), threads, diffuses=self.diffuses)

    def unpack(self, payload: U8, values: F32, threads: int) -> None:
        """A last group may run past the tensor."""
        _unpack_tiles(payload.reshape(-1, TILE_BYTES), values, threads)


@dataclass(frozen=True)
class Q1Sparse(TiledCodec):
    """q1p's tiles | u32 count | (u32 flat index, f16 value) of the largest weights.

    All weights as large as the smallest kept one are kept, so there may be more than
    `kept_share` of them: all, where all are equal.
    """

    name: str = "q1s"
    dtype: str = "q1s"
    what: str = "q1p, and the largest 1 % as they are"
    limit: float = F16_LIMIT
    kept_share: float = KEPT_SHARE

    def shape_problem(self, shape: Shape) -> str | None:
        """Whole groups, and no more of them than an index can say."""
        if element_count(shape) > 1 << 32:
            return "it has more weights than its 32-bit indices reach"
        return super().shape_problem(shape)

    def packed(self, values: F32, threads: int) -> U8:
        """Outliers have no part in scales and carries."""
        count = kept_count(values.size, self.kept_share)
        outlier = float("inf")
        entries = np.empty(0, ENTRY)
        if count:
            outlier = float(nth_smallest(values, values.size - count))
            indices = from_magnitude(values, outlier)
            entries = np.empty(len(indices), ENTRY)
            entries["index"] = indices
            entries["value"] = to_f16(values.reshape(-1)[indices])
        tiles = _tiles(values, outlier, threads, diffuses=True)
        number = np.array([len(entries)], "<u4")
        return np.concatenate([tiles, number.view(np.uint8), entries.view(np.uint8)])

    def unpack(self, payload: U8, values: F32, threads: int) -> None:
        """Tiles first, then the kept weights over them."""
        end = values.size // GROUP * TILE_BYTES
        _unpack_tiles(payload[:end].reshape(-1, TILE_BYTES), values, threads)
        entries = kept_entries(payload[end:], values.size)
        values.reshape(-1)[entries["index"]] = from_f16(entries["value"])

    def nbytes(self, shape: Shape) -> int | None:
        """Ties decide how many are kept."""

    def usual_nbytes(self, shape: Shape) -> int:
        """Without ties."""
        count = element_count(shape)
        kept = kept_count(count, self.kept_share)
        return -(-count // GROUP) * TILE_BYTES + COUNT_BYTES + kept * ENTRY.itemsize


def kept_entries(data: U8, size: int) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
    """The overlay of a q1s payload; BoundsError unless it is whole and in the tensor."""
    count = int(data[:COUNT_BYTES].view("<u4")[0])
    if len(data) - COUNT_BYTES != count * ENTRY.itemsize:
        raise BoundsError(
            f"q1s says it keeps {count:,} weights, but has {len(data) - COUNT_BYTES:,} "
            "bytes of them"
        )
    entries = data[COUNT_BYTES:].view(ENTRY)
    outside = np.flatnonzero(entries["index"] >= size)
    if len(outside):
        index = entries["index"][outside[0]]
        raise BoundsError(f"q1s keeps a weight at {index:,} of a tensor of {size:,}")
    return entries


def _tiles(values: F32, outlier: float, threads: int, *, diffuses: bool) -> U8:
    from cmfio.codecs.q1_kernels import diffuse_signs, mean_magnitudes, pack_signs

    rows, columns = values.shape
    tiles = np.empty((rows, columns // GROUP, TILE_BYTES), np.uint8)
    scales = tiles[:, :, :2].view("<f2")[:, :, 0]

    def work(top: int, bottom: int) -> None:
        block, part = values[top:bottom], tiles[top:bottom].reshape(-1, TILE_BYTES)
        means = np.empty(part.shape[0], np.float32)
        mean_magnitudes(block.reshape(-1, GROUP), outlier, means)
        scale = scale16(means).reshape(bottom - top, -1)
        scales[top:bottom] = scale_halves(scale)
        if diffuses:
            diffuse_signs(block, scale, outlier, part)
        else:
            pack_signs(block.reshape(-1, GROUP), part)

    in_blocks(work, rows, block_height(columns), threads)
    return tiles.reshape(-1)


def _unpack_tiles(tiles: U8, values: F32, threads: int) -> None:
    from cmfio.codecs.q1_kernels import unpack_signs

    def work(first: int, last: int, groups: F32) -> None:
        part = tiles[first:last]
        scale = from_f16(np.ascontiguousarray(part[:, :2]).view("<f2")[:, 0])
        unpack_signs(part, scale, groups)

    unpack_groups(values, work, threads)
