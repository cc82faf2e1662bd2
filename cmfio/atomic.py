"""A file appears whole or not at all: written as `NAME.partial`, synced, renamed."""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from cmfio.errors import CmfIoError, SameFile


def partial_path(out: Path) -> Path:
    """Where `out` is written before it gets its name."""
    return out.with_name(out.name + ".partial")


def refuse_same(out: Path, sources: Iterable[Path]) -> None:
    """Raise SameFile if writing `out` would touch one of `sources`, by any path or link."""
    for source in sources:
        try:
            is_same = any(
                target.exists() and target.samefile(source)
                for target in (out, partial_path(out))
            )
        except OSError as error:
            raise CmfIoError(f"{out}: can't be compared with {source}: {error}") from error
        if is_same:
            raise SameFile(f"{out}: is the input ({source}) itself; name another output")


@contextlib.contextmanager
def replacing(out: Path) -> Iterator[BinaryIO]:
    """A file that takes the name `out` when the block ends well, and is removed otherwise.

    What a killed writer left under the temporary name is overwritten; a living one makes
    this raise CmfIoError, as does anything the system refuses.
    """
    partial = partial_path(out)
    try:
        with _claimed(partial) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                partial.replace(out)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
        _sync_folder(out.parent)
    except OSError as error:
        raise CmfIoError(f"{out}: can't be written: {error}") from error


@contextlib.contextmanager
def _claimed(partial: Path) -> Iterator[BinaryIO]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(partial, flags, 0o666), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CmfIoError(f"{partial}: another program is writing this file") from None
        # Another writer may have renamed this very file between our open and our lock.
        if not _is_named(file.fileno(), partial):
            raise CmfIoError(f"{partial}: another program has just written this file")
        file.truncate(0)
        yield file


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_named(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
