"""q8_row and q8_2f: signed bytes with a f16 scale a row, or a row and a column."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cmfio.codecs.base import F32, U8, MatrixCodec
from cmfio.codecs.blocks import block_height, in_blocks
from cmfio.codecs.halves import F16_LIMIT, from_f16, scale16, scale_halves
from cmfio.dtypes import Label

# The format's own: column sums are made in blocks of so many rows, then added up.
SUM_ROWS = 256


@dataclass(frozen=True)
class Q8Row(MatrixCodec):
    """Bytes: int8[R·C] | f16 scale[R]."""

    label: ClassVar[Label] = "Q8_ROW"

    name: str = "q8_row"
    dtype: str = "q8_row"
    what: str = "signed bytes, a scale a row"
    limit: float = 127 * F16_LIMIT

    def planes(self, columns: int) -> tuple[int, ...]:
        """Steps and a scale."""
        return columns, 2

    def packed(self, values: F32, threads: int) -> U8:
        """Scale = |largest| / 127 as f16; steps rounded half to even."""
        from cmfio.codecs.q8_kernels import largest_of_rows, steps_of_rows

        payload = self.new_payload(values.shape)
        steps, scales = _row_parts(payload, values.shape)

        def work(top: int, bottom: int) -> None:
            largest = np.empty(bottom - top, np.float32)
            largest_of_rows(values[top:bottom], largest)
            scale = scale16(largest / np.float32(127))
            scales[top:bottom] = scale_halves(scale)
            steps_of_rows(values[top:bottom], scale, steps[top:bottom])

        in_blocks(work, len(values), block_height(values.shape[1]), threads)
        return payload

    def unpack(self, payload: U8, values: F32, threads: int) -> None:
        """Step times the row's scale."""
        from cmfio.codecs.q8_kernels import scaled_rows

        steps, scales = _row_parts(payload, values.shape)
        scale = from_f16(scales)

        def work(top: int, bottom: int) -> None:
            scaled_rows(steps[top:bottom], scale[top:bottom], values[top:bottom])

        in_blocks(work, len(values), block_height(values.shape[1]), threads)


@dataclass(frozen=True)
class Q8TwoField(MatrixCodec):
    """Bytes: int8[R·C] | f16 row[R] | f16 column[C]."""

    label: ClassVar[Label] = "Q8_2F"
    encodes_rows_alone: ClassVar[bool] = False  # columns' scales are of all rows

    name: str = "q8_2f"
    dtype: str = "q8_2f"
    what: str = "signed bytes, a scale a row and one a column"
    limit: float = F16_LIMIT  # a column's scale is at most its largest magnitude

    def planes(self, columns: int) -> tuple[int, ...]:
        """Steps and a scale; the columns' scales stand behind, for all rows."""
        return columns, 2

    def packed(self, values: F32, threads: int) -> U8:
        """A column's scale is the root of its mean square; then rows as in q8_row."""
        from cmfio.codecs.q8_kernels import largest_by_columns, steps_by_columns

        payload = self.new_payload(values.shape)
        steps, rows = _row_parts(payload, values.shape)
        column = _column_scales(values, threads)
        _column_part(payload, values.shape)[:] = scale_halves(column)

        def work(top: int, bottom: int) -> None:
            largest = np.empty(bottom - top, np.float32)
            largest_by_columns(values[top:bottom], column, largest)
            row = scale16(largest / np.float32(127))
            rows[top:bottom] = scale_halves(row)
            steps_by_columns(values[top:bottom], column, row, steps[top:bottom])

        in_blocks(work, len(values), block_height(values.shape[1]), threads)
        return payload

    def unpack(self, payload: U8, values: F32, threads: int) -> None:
        """Step times the row's scale, times the column's."""
        from cmfio.codecs.q8_kernels import scaled_by_columns

        steps, rows = _row_parts(payload, values.shape)
        row, column = from_f16(rows), from_f16(_column_part(payload, values.shape))

        def work(top: int, bottom: int) -> None:
            scaled_by_columns(
                steps[top:bottom], row[top:bottom], column, values[top:bottom]
            )

        in_blocks(work, len(values), block_height(values.shape[1]), threads)


def _column_scales(values: F32, threads: int) -> F32:
    from cmfio.codecs.q8_kernels import add_squares

    rows, columns = values.shape
    if not rows:
        return np.empty(0, np.float32)
    sums = np.zeros((-(-rows // SUM_ROWS), columns), np.float64)

    def work(top: int, bottom: int) -> None:
        add_squares(values[top:bottom], sums[top // SUM_ROWS])

    in_blocks(work, rows, SUM_ROWS, threads)
    total = np.zeros(columns, np.float64)
    for block in sums:
        total += block
    return scale16(np.sqrt(total / rows).astype(np.float32))


def _row_parts(
    payload: U8, shape: tuple[int, ...]
) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    rows, columns = shape
    count = rows * columns
    steps = payload[:count].view(np.int8).reshape(shape)
    # An odd count leaves the scales unaligned, which only numpy's own loops may read.
    return steps, payload[count : count + 2 * rows].view("<f2")


def _column_part(payload: U8, shape: tuple[int, ...]) -> NDArray[np.float16]:
    rows, columns = shape
    return payload[rows * columns + 2 * rows :].view("<f2")
