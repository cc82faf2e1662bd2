"""Some rows of a stored matrix by themselves: for tensors too large to be held as f32.

A payload is made of planes, one behind another: q8_row's are the weights of all rows, then
their scales. Where no row depends on another, the rows from `top` to `bottom` are a payload
of their own, whose planes are stretches of the whole one's.
"""

from collections.abc import Callable, Mapping

from cmfio.codecs.base import F32, U8
from cmfio.codecs.registry import CODECS
from cmfio.dtypes import Shape

# Bytes a row takes in each plane, by its columns. What isn't here looks at all rows at once
# (q8_2f, vbit, q1s, q1t), or its rows don't begin where planes do.
_PLANES: Mapping[str, Callable[[int], tuple[int, ...]]] = {
    "f32": lambda columns: (4 * columns,),
    "f16": lambda columns: (2 * columns,),
    "bf16": lambda columns: (2 * columns,),
    "q8_row": lambda columns: (columns, 2),
    "q4_block": lambda columns: (columns // 2, columns // 16),
    "q4_tiled": lambda columns: (columns // 32 * 18,),
    "q4tp": lambda columns: (columns // 2, 4, _code_bytes(columns)),
    "q2tp": lambda columns: (columns // 4, 4, _code_bytes(columns)),
    "q1": lambda columns: (columns // 32 * 6,),
    "q1p": lambda columns: (columns // 32 * 6,),
}
# Read with all columns' scales behind the planes; its encoder looks at all rows.
_COLUMN_SCALES = "q8_2f"


def encodes_by_rows(codec: str, shape: Shape) -> bool:
    """Whether blocks of rows, put together, are what the codec makes of the whole."""
    return _planes(codec, shape) is not None


def decodes_by_rows(dtype: str, shape: Shape) -> bool:
    """Whether `decode_rows` can read this dtype."""
    return _planes(dtype, shape) is not None or (
        dtype == _COLUMN_SCALES and len(shape) == 2
    )


def decode_rows(payload: memoryview, dtype: str, shape: Shape, rows: range) -> F32:
    """The f32 values of some consecutive rows, the same as in the whole matrix."""
    count, columns = shape
    planes = (columns, 2) if dtype == _COLUMN_SCALES else _PLANES[dtype](columns)
    parts = []
    start = 0
    for width in planes:
        parts.append(payload[start + rows.start * width : start + rows.stop * width])
        start += count * width
    parts.append(payload[start:])  # what all rows share
    return CODECS[dtype].decode(b"".join(parts), (len(rows), columns))


def scatter_rows(
    block: memoryview, codec: str, whole: U8, shape: Shape, rows: range
) -> None:
    """Put the payload of some rows where it goes in the payload of all of them."""
    count, columns = shape
    own = start = 0
    for width in _PLANES[codec](columns):
        length = len(rows) * width
        place = start + rows.start * width
        whole[place : place + length].data[:] = block[own : own + length]
        own += length
        start += count * width


def _planes(name: str, shape: Shape) -> tuple[int, ...] | None:
    if len(shape) != 2 or name not in _PLANES:
        return None
    # q4_block's groups run on from row to row, unless a row is whole groups.
    is_grouped = shape[1] % 32 == 0
    is_aligned = is_grouped or name in {"f32", "f16", "bf16", "q8_row"}
    return _PLANES[name](shape[1]) if is_aligned else None


def _code_bytes(columns: int) -> int:
    return -(-5 * (columns // 32) // 8)
