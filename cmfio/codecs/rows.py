"""Some rows of a stored matrix by themselves: for tensors too large to be held as f32.

Where a codec knows its `planes`, the rows from `top` to `bottom` are a payload of their
own, whose planes are stretches of the whole one's.
"""

from cmfio.codecs.base import F32, U8
from cmfio.codecs.registry import CODECS
from cmfio.dtypes import Shape


def encodes_by_rows(codec: str, shape: Shape) -> bool:
    """Whether blocks of rows, put together, are what the codec makes of the whole."""
    return decodes_by_rows(codec, shape) and CODECS[codec].encodes_rows_alone


def decodes_by_rows(dtype: str, shape: Shape) -> bool:
    """Whether `decode_rows` can read this dtype."""
    codec = CODECS.get(dtype)
    return codec is not None and len(shape) == 2 and codec.planes(shape[1]) is not None


def decode_rows(payload: memoryview, dtype: str, shape: Shape, rows: range) -> F32:
    """The f32 values of some consecutive rows, the same as in the whole matrix."""
    count, columns = shape
    parts = []
    start = 0
    for width in _planes(dtype, columns):
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
    for width in _planes(codec, columns):
        length = len(rows) * width
        place = start + rows.start * width
        whole[place : place + length].data[:] = block[own : own + length]
        own += length
        start += count * width


def _planes(name: str, columns: int) -> tuple[int, ...]:
    planes = CODECS[name].planes(columns)
    assert planes is not None, "asked for by rows without asking whether it goes"
    return planes
