"""A stored tensor encoded anew when its turn comes, by blocks of rows where it is large."""

from collections.abc import Iterator

from cmfio.codecs.base import F32, Codec
from cmfio.codecs.registry import CODECS
from cmfio.codecs.rows import decode_rows, decodes_by_rows, encodes_by_rows, scatter_rows
from cmfio.dtypes import element_count
from cmfio.hash64 import Bytes
from cmfio.header import TensorEntry
from cmfio.layout import Payload
from cmfio.reader import Container
from cmfio.rewrite import check_values, encode_later
from cmfio.verify import check_tensor

BLOCK_BYTES = 1 << 26  # of f32; a tensor of no more is done at once


def reencoded(source: Container, entry: TensorEntry, codec: str, threads: int) -> Payload:
    """`entry` stored by `codec`; NotEncodable, at its turn, for values it can't hold.

    DamagedTensor if its bytes don't have their hash: new ones would hide that.
    Beside its payload a large tensor takes a block of f32, not all of its values, if both
    codecs treat each row by itself.
    """
    name, shape = entry.name, entry.shape
    is_large = 4 * element_count(shape) > BLOCK_BYTES
    by_rows = encodes_by_rows(codec, shape) and decodes_by_rows(entry.dtype, shape)
    if not (is_large and by_rows):
        return encode_later(
            name, shape, codec, lambda: _checked(source, name), threads=threads
        )
    chosen = CODECS[codec]
    return Payload(
        name,
        chosen.dtype,
        shape,
        lambda: _by_rows(source, entry, chosen, threads),
        chosen.nbytes(shape),
    )


def _checked(source: Container, name: str) -> F32:
    check_tensor(source, name)
    return source.tensor(name)


def _by_rows(source: Container, entry: TensorEntry, codec: Codec, threads: int) -> Bytes:
    check_tensor(source, entry.name)
    whole = codec.new_payload(entry.shape)
    payload = source.payload(entry.name)
    for rows in _blocks(*entry.shape):
        values = decode_rows(payload, entry.dtype, entry.shape, rows)
        source.forget(entry.name)
        check_values(entry.name, values, codec, rows.start)
        block = memoryview(codec.encode(values, threads=threads))
        scatter_rows(block, codec.name, whole, entry.shape, rows)
    return whole.data.toreadonly()


def _blocks(count: int, columns: int) -> Iterator[range]:
    height = max(1, BLOCK_BYTES // (4 * max(columns, 1)))
    for top in range(0, count, height):
        yield range(top, min(top + height, count))
