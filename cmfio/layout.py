"""One container file, written in a single pass: the peer's layout."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cmfio.copying import BackgroundWriter, FileRange
from cmfio.directory import by_name, directory_size, pack_directory
from cmfio.dtypes import Shape, dtype_named
from cmfio.envelope import DATA_ALIGN, SIZE, Envelope, Span, required_features
from cmfio.errors import BoundsError, DamagedTensor
from cmfio.hash64 import Bytes, hash64
from cmfio.header import Header, TensorEntry, dump_header

PAGE_FROM = 16_384  # payloads from this size on start on a page
TRAILING = ("masks", "vocab", "index")
Progress = Callable[[int, int], None]  # hears (done, in all)


@dataclass(frozen=True)
class Payload:
    """A tensor to write. `data` may be a function, called when its turn comes.

    `nbytes` is None where only `data` tells. With `hash64` given, other bytes raise
    DamagedTensor: a copy checks what it copies.
    """

    name: str
    dtype: str
    shape: Shape
    data: Bytes | FileRange | Callable[[], Bytes]
    nbytes: int | None
    hash64: int | None = None

    def bytes_now(self) -> Bytes | FileRange:
        """The payload, made if it has to be; BoundsError if its size isn't as announced."""
        data = self.data() if callable(self.data) else self.data
        size = data.nbytes if isinstance(data, FileRange | memoryview) else len(data)
        if self.nbytes not in (None, size):
            raise BoundsError(
                f"tensor {self.name!r}: {size:,} bytes came, not {self.nbytes:,}"
            )
        return data

    def check_hash(self, found: int) -> None:
        """Raise DamagedTensor unless what was written has the hash that was expected."""
        if self.hash64 not in (None, found):
            raise DamagedTensor(
                f"tensor {self.name!r} has hash {found:016x}, its directory says "
                f"{self.hash64:016x}; the input is damaged, copy or convert it again"
            )


def write_file(
    file: BinaryIO,
    header: Header,
    payloads: Sequence[Payload],
    sections: Mapping[str, Bytes],
    on_payload: Callable[[], None],
) -> None:
    """Fill an empty file. Where data begin follows from the header and the names alone.

    So nothing is needed in advance but those: payloads are made and written one by one, and
    the envelope and the directory, which want their hashes, come last.
    """
    head = dump_header(header)
    head_end = SIZE + len(head) + directory_size([payload.name for payload in payloads])
    data_offset = aligned(head_end, DATA_ALIGN)
    handle = file.fileno()
    with BackgroundWriter(handle) as writer:
        entries: list[TensorEntry] = []
        cursor = 0
        for payload in payloads:
            entries.append(_write_payload(writer, payload, data_offset, cursor))
            cursor = entries[-1].offset + entries[-1].nbytes
            on_payload()
        spans = {
            "header": Span(SIZE, len(head)),
            "dir": Span(SIZE + len(head), head_end - SIZE - len(head)),
            "data": Span(data_offset, cursor),
        }
        end = spans["data"].end
        for name in TRAILING:
            section = sections.get(name, b"")
            spans[name] = Span(end, len(section)) if len(section) else Span()
            writer.put(section, end)
            end += len(section)
        directory = pack_directory(entries)
        dtypes = {entry.dtype for entry in entries}
        features = required_features(header, dtypes, has_masks="masks" in sections)
        envelope = Envelope(features, spans, hash64(head), hash64(directory))
        writer.put(envelope.pack() + head + directory, 0)
    os.ftruncate(handle, end)  # without payloads the file ends where they would begin


def check_payloads(payloads: Sequence[Payload], out: Path) -> None:
    """Raise before anything is written if a name stands twice or a size is wrong."""
    for payload in payloads:
        expected = dtype_named(payload.dtype).nbytes(payload.shape)
        if None not in (expected, payload.nbytes) and expected != payload.nbytes:
            raise BoundsError(
                f"{out}: tensor {payload.name!r}: {payload.dtype} of shape "
                f"{list(payload.shape)} takes {expected:,} bytes, not {payload.nbytes:,}"
            )
    by_name([TensorEntry(p.name, p.dtype, p.shape, 0, 0, 0) for p in payloads], out)


def payload_offset(cursor: int, nbytes: int) -> int:
    """Where a payload goes whose predecessor ends at `cursor`."""
    return aligned(cursor, DATA_ALIGN if nbytes >= PAGE_FROM else 64)


def aligned(place: int, to: int) -> int:
    """`place`, or the next multiple of `to`."""
    return -(-place // to) * to


def _write_payload(
    writer: BackgroundWriter, payload: Payload, data_offset: int, cursor: int
) -> TensorEntry:
    data = payload.bytes_now()
    size = data.nbytes if isinstance(data, FileRange | memoryview) else len(data)
    offset = payload_offset(cursor, size)
    found = writer.put(data, data_offset + offset)
    payload.check_hash(found)
    return TensorEntry(payload.name, payload.dtype, payload.shape, offset, size, found)
