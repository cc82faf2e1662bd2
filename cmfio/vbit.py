"""What opening checks of vbit and vbit_ro: their size is in their bytes."""

import numpy as np

from cmfio.dtypes import Shape, is_tiled
from cmfio.errors import BoundsError

WIDTHS = (3, 4, 5, 6, 8)


def check_vbit(
    payload: memoryview, shape: Shape, where: str, *, with_offsets: bool
) -> None:
    """Raise BoundsError unless the payload's widths, offsets and length fit `shape`."""
    if not is_tiled(shape) or shape[1] == 0:
        raise BoundsError(f"{where}: vbit needs 2 dimensions and columns in groups of 32")
    rows, columns = shape
    head = rows + 2 * rows * (columns // 32) + (4 * (rows + 1) if with_offsets else 0)
    if len(payload) < head:
        raise BoundsError(
            f"{where}: {len(payload):,} bytes, its tables alone take {head:,}"
        )
    widths = np.frombuffer(payload[:rows], np.uint8)
    wrong = np.flatnonzero(~np.isin(widths, WIDTHS))
    if len(wrong):
        raise BoundsError(f"{where}: row {wrong[0]} has bit width {widths[wrong[0]]}")
    row_bytes = (widths.astype(np.int64) * columns + 7) // 8
    ends = np.concatenate([[0], np.cumsum(row_bytes)])
    if len(payload) != head + int(ends[-1]):
        raise BoundsError(
            f"{where}: {len(payload):,} bytes, its bit widths add up to "
            f"{head + int(ends[-1]):,}"
        )
    if with_offsets:
        stored = np.frombuffer(payload[head - 4 * (rows + 1) : head], "<u4")
        if not np.array_equal(stored, ends):
            first = int(np.flatnonzero(stored != ends)[0])
            raise BoundsError(f"{where}: offset of row {first} is {stored[first]}")
