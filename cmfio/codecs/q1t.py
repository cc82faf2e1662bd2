"""q1t: 0, +scale or -scale, and some weights of each row as they are."""

from dataclasses import dataclass

import numpy as np

from cmfio.codecs.base import BLOCK_ELEMENTS, F32, GROUP, U8, TiledCodec, ValueProblem
from cmfio.codecs.blocks import block_height, in_blocks, pack_groups, unpack_groups
from cmfio.codecs.halves import F16_LIMIT, from_f16, scale16, to_f16
from cmfio.codecs.outliers import Indices, kept_count, largest
from cmfio.dtypes import Shape
from cmfio.errors import BoundsError

TILE_BYTES = 2 + 7
ENTRY = np.dtype([("column", "<u2"), ("value", "<f2")])
MAX_COLUMNS = 1 << 16
SHARE_OF_MEAN = np.float32(0.7)
# How far a magnitude may be from its group's largest, to count as the same.
TERNARY_TOLERANCE = np.float32(0.001)


class Ternary(TiledCodec):
    """Tiles: f16 scale | 32 digits in 7 bytes. Then u32 row_ptr[R + 1], which says where
    in the rest, (u16 column, f16 value), each row's kept weights are."""

    def shape_problem(self, shape: Shape) -> str | None:
        """Whole groups, columns that 16 bits can say."""
        if len(shape) == 2 and shape[1] > MAX_COLUMNS:
            return f"it holds up to {MAX_COLUMNS:,} columns"
        return super().shape_problem(shape)

    def unpack(self, payload: U8, values: F32, threads: int) -> None:
        """Tiles first, then the kept weights over them."""
        from cmfio.codecs.q1t_kernels import unpack_digits

        end = values.size // GROUP * TILE_BYTES
        tiles = payload[:end].reshape(-1, TILE_BYTES)

        def work(first: int, last: int, groups: F32) -> None:
            part = tiles[first:last]
            scale = from_f16(np.ascontiguousarray(part[:, :2]).view("<f2")[:, 0])
            unpack_digits(part, scale, groups)

        unpack_groups(values, work, threads)
        put_kept(payload[end:], values)


@dataclass(frozen=True)
class Q1Ternary(Ternary):
    """Any weights, rounded; `kept_share` of them, the largest, are kept (q1t_overlay)."""

    name: str = "q1t"
    dtype: str = "q1t"
    what: str = "-1, 0 or 1, a scale for 32 weights"
    limit: float = F16_LIMIT / 2  # fitting a row may double its scales
    kept_share: float = 0.0

    def nbytes(self, shape: Shape) -> int | None:
        """As many weights as asked for are kept, whatever they are."""
        if self.shape_problem(shape) is not None:
            return None
        rows, columns = shape
        kept = kept_count(rows * columns, self.kept_share)
        head = rows * columns // GROUP * TILE_BYTES + 4 * (rows + 1)
        return head + kept * ENTRY.itemsize

    def packed(self, values: F32, threads: int) -> U8:
        """Per group the better of two scales and borders, then a factor per row."""
        from cmfio.codecs.q1t_kernels import pack_digits, refit_rows

        rows, columns = values.shape
        kept = largest(values, kept_count(values.size, self.kept_share))
        tiles = np.empty((rows, columns // GROUP, TILE_BYTES), np.uint8)
        scales = tiles[:, :, :2].view("<f2")[:, :, 0]

        def work(top: int, bottom: int) -> None:
            block = values[top:bottom]
            first, last = np.searchsorted(kept, [top * columns, bottom * columns])
            is_kept = np.zeros(block.size, np.uint8)
            is_kept[kept[first:last] - top * columns] = 1
            digits, scale = _digits(block.reshape(-1, GROUP), is_kept.reshape(-1, GROUP))
            scale = scale.reshape(bottom - top, -1)
            refit_rows(block, digits.reshape(block.shape), scale)
            scales[top:bottom] = to_f16(scale)
            pack_digits(digits, tiles[top:bottom].reshape(-1, TILE_BYTES))

        in_blocks(work, rows, block_height(columns), threads)
        return np.concatenate([tiles.reshape(-1), _overlay(values, kept)])


@dataclass(frozen=True)
class Q1TernaryExact(Ternary):
    """Weights that are 0, s or -s in each group already: nothing is lost but s's f16."""

    name: str = "q1t_exact"
    dtype: str = "q1t"
    what: str = "q1t for weights that are ternary already, else refused"
    limit: float = F16_LIMIT

    def nbytes(self, shape: Shape) -> int | None:
        """None but the tiles: nothing is kept."""
        return Q1Ternary().nbytes(shape)

    def value_problem(self, values: F32) -> ValueProblem | None:
        """The first weight that is neither 0 nor within 0.1 % of its group's largest."""
        beyond = super().value_problem(values)
        if beyond is not None:
            return beyond
        flat = values.reshape(-1)
        for start in range(0, flat.size, BLOCK_ELEMENTS):
            groups = np.abs(flat[start : start + BLOCK_ELEMENTS]).reshape(-1, GROUP)
            scale = _exact_scales(groups)[:, None]
            wrong = (groups != 0) & (np.abs(groups - scale) > TERNARY_TOLERANCE * scale)
            if wrong.any():
                place = start + int(np.argmax(wrong))
                return ValueProblem(place, "not 0 or ± the largest of its 32")
        return None

    def packed(self, values: F32, threads: int) -> U8:
        """Scale = |largest| as f16, without a floor."""
        from cmfio.codecs.q1t_kernels import pack_digits

        tiles = np.empty((values.size // GROUP, TILE_BYTES), np.uint8)
        scales = tiles[:, :2].view("<f2")[:, 0]

        def work(first: int, last: int, groups: F32) -> None:
            scales[first:last] = to_f16(np.abs(groups).max(axis=1))
            digits = (groups > 0) + 2 * (groups < 0).view(np.uint8)
            pack_digits(digits.astype(np.uint8), tiles[first:last])

        pack_groups(values, work, threads)
        return np.concatenate([tiles.reshape(-1), _overlay(values, np.empty(0, np.int64))])


def put_kept(data: U8, values: F32) -> None:
    """Writes a payload's kept weights; BoundsError unless all are whole and in a row."""
    rows, columns = values.shape
    ends = data[: 4 * (rows + 1)].view("<u4").astype(np.int64)
    entries = data[4 * (rows + 1) :]
    if ends[0] or (np.diff(ends) < 0).any() or ends[-1] * ENTRY.itemsize != len(entries):
        raise BoundsError(
            f"q1t's row table, from {ends[0]:,} to {ends[-1]:,}, doesn't fit its "
            f"{len(entries):,} bytes of kept weights"
        )
    kept = entries.view(ENTRY)
    column = kept["column"].astype(np.int64)
    outside = np.flatnonzero(column >= columns)
    if len(outside):
        raise BoundsError(
            f"q1t keeps a weight in column {column[outside[0]]:,} of {columns:,}"
        )
    row = np.repeat(np.arange(rows), np.diff(ends))
    values[row, column] = from_f16(kept["value"])


def _overlay(values: F32, kept: Indices) -> U8:
    rows, columns = values.shape
    entries = np.empty(len(kept), ENTRY)
    entries["column"] = kept % max(columns, 1)
    entries["value"] = to_f16(values.reshape(-1)[kept])
    ends = np.searchsorted(kept, np.arange(rows + 1) * columns).astype("<u4")
    return np.concatenate([ends.view(np.uint8), entries.view(np.uint8)])


def _digits(groups: F32, is_kept: U8) -> tuple[U8, F32]:
    """The digits of each group and its scale, before rows are fitted."""
    from cmfio.codecs.q1t_kernels import choose_digits, mean_from, mean_magnitudes

    count = len(groups)
    means, means_above = np.empty(count, np.float32), np.empty(count, np.float64)
    mean_magnitudes(groups, is_kept, means)
    border = SHARE_OF_MEAN * means
    mean_from(groups, is_kept, border, means_above)
    scales = np.empty((count, 2), np.float32)
    scales[:, 0] = scale16(means)
    scales[:, 1] = scale16(means_above.astype(np.float32))
    digits, scale = np.empty(groups.shape, np.uint8), np.empty(count, np.float32)
    choose_digits(groups, is_kept, border, scales, digits, scale)
    return digits, scale


def _exact_scales(magnitudes: F32) -> F32:
    return from_f16(to_f16(magnitudes.max(axis=1)))
