"""The ordinary writer: one pass over the payloads, the peer's layout (cmf.md §6)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from cmfio.atomic import partial_path, replacing
from cmfio.directory import by_name, directory_size, pack_directory
from cmfio.dtypes import Shape, dtype_named
from cmfio.envelope import DATA_ALIGN, SIZE, Envelope, Span, required_features
from cmfio.errors import BoundsError, DamagedTensor
from cmfio.hash64 import Bytes, Hash64, hash64
from cmfio.header import Header, SectionHashes, TensorEntry, dump_header
from cmfio.reader import open_file

PAGE_FROM = 16_384  # payloads from this size on start on a page
CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class Payload:
    """A tensor to write. `data` may be a function, called when its turn comes.

    With `hash64` given, other bytes raise DamagedTensor: a copy checks what it copies.
    """

    name: str
    dtype: str
    shape: Shape
    data: Bytes | Callable[[], Bytes]
    nbytes: int
    hash64: int | None = None


def write_container(
    out: Path,
    header: Header,
    payloads: Sequence[Payload],
    *,
    masks: Bytes | None = None,
    vocab: Bytes | None = None,
    index: Bytes | None = None,
) -> None:
    """Write `out` whole or not at all; it is opened and checked before it gets its name.

    Section hashes in `header` are made afresh. CmfError if a name stands twice, a payload
    has the wrong size, or the system refuses.
    """
    given = {"masks": masks, "vocab": vocab, "index": index}
    sections = {
        name: data for name, data in given.items() if data is not None and len(data)
    }
    hashes = {name: f"{hash64(data):016x}" for name, data in sections.items()}
    fresh = SectionHashes(**hashes) if hashes else None
    header = header.model_copy(update={"section_hashes": fresh})
    with replacing(out) as file:
        _write(file, header, _placed(payloads, out), payloads, sections)
        file.flush()
        open_file(partial_path(out)).close()


def _write(
    file: BinaryIO,
    header: Header,
    entries: Sequence[TensorEntry],
    payloads: Sequence[Payload],
    sections: dict[str, Bytes],
) -> None:
    head = dump_header(header)
    head_end = SIZE + len(head) + directory_size([entry.name for entry in entries])
    data_offset = _aligned(head_end, DATA_ALIGN)
    written = [
        replace(entry, hash64=_write_payload(file, payload, data_offset + entry.offset))
        for entry, payload in zip(entries, payloads, strict=True)
    ]
    end = data_offset + _data_length(entries)
    spans = {
        "header": Span(SIZE, len(head)),
        "dir": Span(SIZE + len(head), head_end - SIZE - len(head)),
        "data": Span(data_offset, end - data_offset),
    }
    file.truncate(end)
    for name in ("masks", "vocab", "index"):
        section = sections.get(name, b"")
        spans[name] = Span(end, len(section)) if len(section) else Span()
        file.seek(end)
        file.write(section)
        end += len(section)
    directory = pack_directory(written)
    dtypes = {entry.dtype for entry in entries}
    features = required_features(header, dtypes, has_masks="masks" in sections)
    envelope = Envelope(features, spans, hash64(head), hash64(directory))
    file.seek(0)
    file.write(envelope.pack() + head + directory)


def _placed(payloads: Sequence[Payload], out: Path) -> list[TensorEntry]:
    entries: list[TensorEntry] = []
    cursor = 0
    for payload in payloads:
        expected = dtype_named(payload.dtype).nbytes(payload.shape)
        if expected is not None and expected != payload.nbytes:
            raise BoundsError(
                f"{out}: tensor {payload.name!r}: {payload.dtype} of shape "
                f"{list(payload.shape)} takes {expected:,} bytes, not {payload.nbytes:,}"
            )
        offset = _aligned(cursor, DATA_ALIGN if payload.nbytes >= PAGE_FROM else 64)
        entry = TensorEntry(
            payload.name, payload.dtype, payload.shape, offset, payload.nbytes, 0
        )
        entries.append(entry)
        cursor = offset + payload.nbytes
    by_name(entries, out)
    return entries


def _write_payload(file: BinaryIO, payload: Payload, offset: int) -> int:
    data = payload.data() if callable(payload.data) else payload.data
    view = memoryview(data).cast("B")
    if len(view) != payload.nbytes:
        raise BoundsError(
            f"tensor {payload.name!r}: {len(view):,} bytes came, not {payload.nbytes:,}"
        )
    running = Hash64()
    file.seek(offset)
    for start in range(0, len(view), CHUNK_BYTES):
        chunk = view[start : start + CHUNK_BYTES]
        running.update(chunk)
        file.write(chunk)
    if payload.hash64 not in (None, running.value()):
        raise DamagedTensor(
            f"tensor {payload.name!r} has hash {running.value():016x}, its directory says "
            f"{payload.hash64:016x}; the input is damaged, copy or convert it again"
        )
    return running.value()


def _data_length(entries: Sequence[TensorEntry]) -> int:
    return entries[-1].offset + entries[-1].nbytes if entries else 0


def _aligned(place: int, to: int) -> int:
    return -(-place // to) * to
