"""vbit and vbit_ro: each row its own number of bits a weight."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cmfio.codecs.base import F32, GROUP, U8, TiledCodec
from cmfio.codecs.blocks import block_height, in_blocks
from cmfio.codecs.halves import F16_LIMIT, from_f16, scale16, scale_halves
from cmfio.dtypes import Shape, element_count
from cmfio.vbit import check_vbit

WIDTHS = np.array([3, 4, 5, 6, 8], np.uint8)
MEAN_BITS = 4.25
LEAST = np.float32(1e-12)


@dataclass(frozen=True)
class Parts:
    """Views of a payload; `starts[r]` is where row r begins in `packed`."""

    bits: U8
    scales: NDArray[np.float16]  # [rows, groups]
    offsets: NDArray[np.uint32]  # [rows + 1]; empty in vbit
    starts: NDArray[np.uint64]
    packed: U8

    @classmethod
    def of(cls, payload: U8, bits: U8, columns: int, *, with_offsets: bool) -> Self:
        """The parts of a whole payload whose rows have so many bits."""
        rows, groups = len(bits), columns // GROUP
        scale_end = rows + 2 * rows * groups
        head = scale_end + (4 * (rows + 1) if with_offsets else 0)
        return cls(
            payload[:rows],
            payload[rows:scale_end].view("<f2").reshape(rows, groups),
            payload[scale_end:head].view("<u4"),
            row_starts(bits, columns),
            payload[head:],
        )


@dataclass(frozen=True)
class Vbit(TiledCodec):
    """bits[R] | f16 scale[R·groups] | (u32 offset[R + 1]) | rows, packed, on whole bytes.

    A row whose largest magnitude is twice the average row's gets one bit more than
    `mean_bits`. With offsets it is vbit_ro, the one converters write.
    """

    name: str = "vbit"
    dtype: str = "vbit"
    what: str = "3 to 8 bits, more for rows of larger weights; a scale for 32"
    limit: float = 3 * F16_LIMIT  # rows of 3 bits have levels -3..4
    with_offsets: bool = False
    mean_bits: float = MEAN_BITS

    def shape_problem(self, shape: Shape) -> str | None:
        """Columns in whole groups, at least one; offsets that fit 32 bits."""
        if len(shape) == 2 and shape[1] == 0:
            return "it needs columns"
        if self.with_offsets and element_count(shape) >= 1 << 32:
            return "its rows may end past the 4 GB an offset can say"
        return super().shape_problem(shape)

    def nbytes(self, shape: Shape) -> int | None:
        """The rows' bits decide."""

    def usual_nbytes(self, shape: Shape) -> int:
        """As if all rows had `mean_bits`."""
        rows, count = shape[0], element_count(shape)
        offsets = 4 * (rows + 1) if self.with_offsets else 0
        tables = rows + 2 * -(-count // GROUP) + offsets
        return tables + round(self.mean_bits * count / 8)

    def packed(self, values: F32, threads: int) -> U8:
        """Steps rounded half to even, added to 2^(b-1) - 1."""
        from cmfio.codecs.vbit_kernels import join, quantise

        rows, columns = values.shape
        largest = _largest_of_groups(values, threads)
        bits = row_bits(largest.max(axis=1, initial=0), self.mean_bits)
        payload = np.empty(self._size(bits, columns), np.uint8)
        parts = Parts.of(payload, bits, columns, with_offsets=self.with_offsets)
        parts.bits[:] = bits
        ends = np.append(parts.starts, np.uint64(len(parts.packed)))
        if self.with_offsets:
            parts.offsets[:] = ends
        levels = ((1 << (bits.astype(np.int32) - 1)) - 1).astype(np.float32)

        def work(top: int, bottom: int) -> None:
            part = slice(top, bottom)
            scale = scale16(largest[part] / levels[part, None])
            parts.scales[part] = scale_halves(scale)
            codes = np.empty((bottom - top, columns // GROUP, GROUP), np.uint8)
            quantise(values[part].reshape(codes.shape), scale, bits[part], codes)
            eights = codes.reshape(bottom - top, -1).view(np.uint64)
            join(eights, bits[part], parts.starts[part], parts.packed)

        in_blocks(work, rows, block_height(columns), threads)
        return payload

    def unpack(self, payload: U8, values: F32, threads: int) -> None:
        """(code - 2^(b-1) + 1) times the scale of its group."""
        from cmfio.codecs.vbit_kernels import dequantise, split

        check_vbit(payload.data, values.shape, self.name, with_offsets=self.with_offsets)
        rows, columns = values.shape
        bits = payload[:rows]
        parts = Parts.of(payload, bits, columns, with_offsets=self.with_offsets)

        def work(top: int, bottom: int) -> None:
            part = slice(top, bottom)
            codes = np.empty((bottom - top, columns // GROUP, GROUP), np.uint8)
            eights = codes.reshape(bottom - top, -1).view(np.uint64)
            split(parts.packed, bits[part], parts.starts[part], eights)
            scale = from_f16(parts.scales[part])
            dequantise(codes, bits[part], scale, values[part].reshape(codes.shape))

        in_blocks(work, rows, block_height(columns), threads)

    def _size(self, bits: U8, columns: int) -> int:
        rows = len(bits)
        head = rows + 2 * rows * (columns // GROUP)
        if self.with_offsets:
            head += 4 * (rows + 1)
        return head + int(bits.sum(dtype=np.int64)) * columns // 8


def row_bits(largest_R: F32, mean_bits: float) -> U8:
    """The width nearest to mean + log2(largest) - its average; of two the smaller one."""
    if not len(largest_R):
        return np.empty(0, np.uint8)
    log2 = np.log2(np.maximum(largest_R, LEAST).astype(np.float64)).astype(np.float32)
    # One after the other, as the peer adds them; numpy's own mean goes in pairs.
    average = np.add.accumulate(log2, dtype=np.float32)[-1] / np.float32(len(log2))
    wanted = np.float32(mean_bits) + (log2 - average)
    nearest = np.abs(WIDTHS.astype(np.float32) - wanted[:, None])
    bits: U8 = WIDTHS[nearest.argmin(axis=1)]
    return bits


def row_starts(bits: U8, columns: int) -> NDArray[np.uint64]:
    """Where each row begins in the packed part: the columns come in eights."""
    lengths = bits.astype(np.uint64) * np.uint64(columns // 8)
    return np.cumsum(lengths, dtype=np.uint64) - lengths


def _largest_of_groups(values: F32, threads: int) -> F32:
    from cmfio.codecs.group_kernels import largest_magnitudes

    rows, columns = values.shape
    largest = np.empty((rows, columns // GROUP), np.float32)

    def work(top: int, bottom: int) -> None:
        largest_magnitudes(
            values[top:bottom].reshape(-1, GROUP), largest[top:bottom].reshape(-1)
        )

    in_blocks(work, rows, block_height(columns), threads)
    return largest
