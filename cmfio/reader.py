"""Open a container: all that docs/cmf.md lists is checked, payloads aren't read.

The file is mapped, not loaded; payloads are views of the map. A file that another program
cuts short while it is open ends the process (SIGBUS), so ours are renamed into place.
"""

import contextlib
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from cmfio.copying import CHUNK_BYTES, FileRange
from cmfio.directory import by_name, check_entries, parse_directory
from cmfio.envelope import SIZE, Envelope, check_features, parse_envelope
from cmfio.errors import (
    BoundsError,
    CmfIoError,
    MissingTensor,
    ParseError,
    UnknownCodec,
)
from cmfio.header import Header, TensorEntry, parse_header
from cmfio.open_model import OpenModel
from cmfio.opening import open_regular, reason
from cmfio.rules import check_arch, check_knowledge, check_prism_targets
from cmfio.sections import check_index, check_masks
from cmfio.shard_names import sibling_paths

if TYPE_CHECKING:
    from cmfio.codecs.words import Unsigned

TRAILING = ("masks", "vocab", "index")
WANTED = "a .cmf container (`cmf import-hf` makes one of a checkpoint's folder)"
DAMAGED = "if it can be had again, copy or write it again: it may be damaged"


@dataclass(frozen=True)
class ShardFile:
    """One mapped file: its envelope, header, its own tensors, and its bytes."""

    path: Path
    file: BinaryIO
    map: mmap.mmap
    envelope: Envelope
    header: Header
    entries: Sequence[TensorEntry]

    def section(self, name: str) -> memoryview:
        """The bytes of a section; empty when it is absent."""
        return _span(self.map, self.envelope, name)

    def trailing(self) -> dict[str, memoryview]:
        """The sections behind the data that are there."""
        present = [name for name in TRAILING if self.envelope.spans[name].length]
        return {name: self.section(name) for name in present}

    def forget(self, offset: int, length: int) -> None:
        """Hand back the memory of some bytes of the data; they can be read again.

        A map's pages count as the process's own for as long as it keeps them.
        """
        start = self.envelope.spans["data"].offset + offset
        end = min(start + length, len(self.map))
        start -= start % mmap.PAGESIZE
        if end > start:
            self.map.madvise(mmap.MADV_DONTNEED, start, end - start)

    def close(self) -> None:
        """Let the map go; views still held keep it alive until they are dropped."""
        self.file.close()
        _unmap(self.map)


class Container(OpenModel):
    """An open model: one file or all its shards. Use it in a `with`."""

    def __init__(self, files: Sequence[ShardFile]) -> None:
        self.files = tuple(files)
        first = self.files[0]
        self.path: Path = first.path
        self.header: Header = first.header
        entries = [entry for file in self.files for entry in file.entries]
        self.entries: Mapping[str, TensorEntry] = by_name(entries, first.path)

    @property
    def is_single_file(self) -> bool:
        """Whether there are no further shards."""
        return len(self.files) == 1

    @property
    def paths(self) -> list[Path]:
        """All of its files."""
        return [file.path for file in self.files]

    @property
    def masks(self) -> memoryview | None:
        """The masks section, as bytes."""
        return self._trailing("masks")

    @property
    def vocab(self) -> memoryview | None:
        """The tokenizer.json, as bytes."""
        return self._trailing("vocab")

    @property
    def index(self) -> memoryview | None:
        """The index of the masks, as bytes."""
        return self._trailing("index")

    def entry(self, name: str) -> TensorEntry:
        """The directory's line for `name`; MissingTensor if there is none."""
        try:
            return self.entries[name]
        except KeyError:
            raise MissingTensor(
                f"{self.path}: has no tensor {name!r}; `cmf tensors` lists what it has"
            ) from None

    def payload(self, name: str) -> memoryview:
        """The stored bytes of a tensor, read-only."""
        entry = self.entry(name)
        data = self.files[entry.shard].section("data")
        return data[entry.offset : entry.offset + entry.nbytes]

    def stored(self, name: str) -> FileRange:
        """Where a tensor's stored bytes lie, for copying; good until this is closed."""
        entry = self.entry(name)
        file = self.files[entry.shard]
        offset = file.envelope.spans["data"].offset + entry.offset
        return FileRange(file.path, file.file.fileno(), offset, entry.nbytes)

    def chunks(self, name: str) -> Iterator[memoryview]:
        """The stored bytes in pieces, each forgotten when the next is asked for."""
        entry = self.entry(name)
        payload = self.payload(name)
        for start in range(0, entry.nbytes, CHUNK_BYTES):
            yield payload[start : start + CHUNK_BYTES]
            self.files[entry.shard].forget(entry.offset + start, CHUNK_BYTES)

    def forget(self, name: str) -> None:
        """Hand back the memory of a tensor's stored bytes; they can be read again."""
        entry = self.entries[name]
        self.files[entry.shard].forget(entry.offset, entry.nbytes)

    def words(self, name: str) -> "Unsigned":
        """The whole numbers of a u8, u32 or u64 tensor, a copy; else UnknownCodec."""
        from cmfio.codecs.words import WORDS

        entry = self.entry(name)
        if entry.dtype not in WORDS:
            raise UnknownCodec(
                f"{self.path}: tensor {name!r} is stored as {entry.dtype}, not as whole "
                f"numbers ({', '.join(WORDS)})"
            )
        return WORDS[entry.dtype].decode(self.payload(name), entry.shape)

    def close(self) -> None:
        """Let all files go."""
        for file in self.files:
            file.close()

    def _trailing(self, name: str) -> memoryview | None:
        section = self.files[0].section(name)
        return section if len(section) else None


def open_container(path: str | Path) -> Container:
    """The model at `path`; of several shards give the first, the others lie beside it."""
    files = [open_file(Path(path))]
    try:
        shard = files[0].header.shard
        if shard is not None:
            siblings = sibling_paths(files[0].path, shard.no, shard.count)
            for number, sibling in enumerate(siblings, start=1):
                files.append(open_file(sibling, number))
                _check_sibling(files[-1], files[0].header, number + 1)
        return Container(files)
    except BaseException:
        for file in files:
            file.close()
        raise


def open_file(path: Path, shard: int = 0) -> ShardFile:
    """One file by itself, checked; its entries say they are of `shard` (counted from 0)."""
    with contextlib.ExitStack() as on_failure:
        file = on_failure.enter_context(open_regular(path, WANTED))
        mapped, envelope = _map(path, file)
        on_failure.callback(_unmap, mapped)
        try:
            checked = _checked(path, file, mapped, envelope, shard)
        except (ParseError, BoundsError) as error:
            raise type(error)(f"{error}; {DAMAGED}") from error
        on_failure.pop_all()
    return checked


def _map(path: Path, file: BinaryIO) -> tuple[mmap.mmap, Envelope]:
    try:
        size = os.fstat(file.fileno()).st_size
        envelope = parse_envelope(file.read(SIZE), size, path)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise CmfIoError(f"{path}: can't be read: {reason(error)}") from error
    if len(mapped) < size:
        mapped.close()
        raise BoundsError(f"{path}: was cut short while it was being opened")
    return mapped, envelope


def _unmap(mapped: mmap.mmap) -> None:
    with contextlib.suppress(BufferError):
        mapped.close()


def _checked(
    path: Path, file: BinaryIO, mapped: mmap.mmap, envelope: Envelope, shard: int
) -> ShardFile:
    header = _header(_span(mapped, envelope, "header"), path)
    check_features(envelope, header, path)
    check_arch(header.arch, str(path))
    entries = parse_directory(bytes(_span(mapped, envelope, "dir")), path, shard)
    check_prism_targets(header, entries, str(path))
    check_entries(entries, _span(mapped, envelope, "data"), path)
    checked = ShardFile(path, file, mapped, envelope, header, entries)
    sections = checked.trailing()
    if "masks" in sections:
        check_masks(sections["masks"], header.arch, str(path))
    if "index" in sections:
        check_index(sections["index"], str(path))
    check_knowledge(header, by_name(entries, path), sections, str(path))
    return checked


def _span(mapped: mmap.mmap, envelope: Envelope, name: str) -> memoryview:
    span = envelope.spans[name]
    return memoryview(mapped)[span.offset : span.end] if span.length else memoryview(b"")


def _header(data: memoryview, path: Path) -> Header:
    try:
        return parse_header(bytes(data))
    except ParseError as error:
        raise ParseError(f"{path}: {error}") from error


def _check_sibling(file: ShardFile, first: Header, number: int) -> None:
    shard = file.header.shard
    assert first.shard is not None
    if shard is None or (shard.no, shard.count) != (number, first.shard.count):
        raise ParseError(f"{file.path}: doesn't say that it is shard {number} of its model")
    arch = file.header.arch
    same = (arch.linear_core, arch.anchor_core) == (
        first.arch.linear_core,
        first.arch.anchor_core,
    )
    if not same:
        raise ParseError(f"{file.path}: its attention core differs from the first shard's")
