"""A model in several files: their names, where it is cut, how they appear."""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from cmfio.atomic import real_path, replacing
from cmfio.copying import FileRange
from cmfio.directory import directory_size
from cmfio.envelope import DATA_ALIGN, SIZE
from cmfio.errors import CmfError, CmfIoError
from cmfio.hash64 import Bytes
from cmfio.header import Header, Shard, dump_header
from cmfio.layout import Payload, aligned, payload_offset
from cmfio.opening import reason
from cmfio.shard_names import shard_path

MOST_SHARDS = 500  # all are open until the last is written


@dataclass(frozen=True)
class _Extent:
    """How large a shard is so far."""

    fixed: int  # envelope, header and the directory's own head
    trailing: int = 0
    names: int = 0
    data: int = 0

    @property
    def size(self) -> int:
        return aligned(self.fixed + self.names, DATA_ALIGN) + self.data + self.trailing

    def grown(self, payload: Payload) -> "_Extent":
        assert payload.nbytes is not None
        end = payload_offset(self.data, payload.nbytes) + payload.nbytes
        record = directory_size([payload.name]) - directory_size([])
        return replace(self, names=self.names + record, data=end)


def cut(
    header: Header,
    payloads: Sequence[Payload],
    sections: Mapping[str, Bytes],
    most: int,
) -> list[list[Payload]]:
    """The payloads in their order, in files of at most `most` bytes each.

    A payload that doesn't know its size is made to find out, and once more when it is
    written. CmfError if one doesn't fit, or if there would be too many files.
    """
    sized = [_sized(payload) for payload in payloads]
    digits = 1
    while True:  # the number of files is part of their headers, and so of their sizes
        groups = _cut(header, sized, sections, most, 10**digits - 1)
        if len(str(len(groups))) <= digits:
            return groups
        digits += 1


def shard_header(header: Header, number: int, count: int) -> Header:
    """The header of shard `number`: after the first only what it is a part of."""
    shard = Shard(no=number, count=count)
    if number == 1:
        return header.model_copy(update={"shard": shard})
    return Header(arch=header.arch, quant_type=header.quant_type, shard=shard)


@contextlib.contextmanager
def replacing_all(paths: Sequence[Path]) -> Iterator[list[BinaryIO]]:
    """Files that take their names when the block ends well, the first one last.

    A model is opened through its first shard, so at any moment there is either no model or
    a whole one. Of several, an older first shard is removed before the others change.
    """
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(replacing(path)) for path in paths]
        yield files
        if len(files) > 1:
            try:
                for file in files:
                    os.fsync(
                        file.fileno()
                    )  # a full disk should show while the old is there
                real_path(paths[0]).unlink(missing_ok=True)
            except OSError as error:
                raise CmfIoError(
                    f"{paths[0]}: can't be written: {reason(error)}"
                ) from error


def clear_leftovers(out: Path, sources: Sequence[Path]) -> None:
    """Remove what killed writers of `out` left, whatever number of shards they wrote.

    Files that a living writer holds, and `sources`, are let be.
    """
    stem = re.escape(out.name.removesuffix(".cmf"))
    pattern = re.compile(rf"{stem}(?:-(\d{{5}})-of-(\d{{5}}))?\.cmf\.partial")
    with contextlib.suppress(OSError):  # the writer itself says what is wrong
        for path in sorted(out.parent.iterdir()):
            found = pattern.fullmatch(path.name)
            if found and path.is_file() and not _is_any(path, sources):
                # What a first shard's leftover tells is only there until it is removed.
                count = int(found[2]) if found[1] == "00001" else 0
                _remove_abandoned(path, out, count)


def _remove_abandoned(path: Path, out: Path, count: int) -> None:
    """Remove a leftover unless its writer lives; of a first shard of `count`, more."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(handle, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_half_named(out, count)
            path.unlink()


def _remove_half_named(out: Path, count: int) -> None:
    """Shards that got their names from a writer killed before the first one got its."""
    if count == 0 or shard_path(out, 1, count).exists():
        return
    for number in range(2, count + 1):
        shard_path(out, number, count).unlink(missing_ok=True)


def _is_any(path: Path, others: Sequence[Path]) -> bool:
    return any(other.exists() and path.samefile(other) for other in others)


def _cut(
    header: Header,
    payloads: Sequence[Payload],
    sections: Mapping[str, Bytes],
    most: int,
    count: int,
) -> list[list[Payload]]:
    groups: list[list[Payload]] = [[]]
    trailing = sum(len(section) for section in sections.values())
    extent = _Extent(_fixed(header, 1, count), trailing)
    for payload in payloads:
        if extent.grown(payload).size > most and (groups[-1] or len(groups) == 1):
            groups.append([])
            extent = _Extent(_fixed(header, len(groups), count))
        extent = extent.grown(payload)
        if extent.size > most:
            raise CmfError(
                f"tensor {payload.name!r} takes {payload.nbytes:,} bytes, its file "
                f"{extent.size:,}; a shard can't be as small as {most:,} bytes"
            )
        groups[-1].append(payload)
    if len(groups) > MOST_SHARDS:
        raise CmfError(
            f"shards of {most:,} bytes would make {len(groups):,} files; make at most "
            f"{MOST_SHARDS}, with larger shards"
        )
    return groups


def _fixed(header: Header, number: int, count: int) -> int:
    head = dump_header(shard_header(header, number, count))
    return SIZE + len(head) + directory_size([])


def _sized(payload: Payload) -> Payload:
    if payload.nbytes is not None:
        return payload
    data = payload.bytes_now()
    size = data.nbytes if isinstance(data, FileRange | memoryview) else len(data)
    return replace(payload, nbytes=size)
