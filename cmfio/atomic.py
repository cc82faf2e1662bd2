"""A file appears whole or not at all: written as `NAME.partial`, synced, renamed."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from cmfio.errors import CmfError, CmfIoError, SameFile


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
def replacing(out: Path, *, waits: bool = False) -> Iterator[BinaryIO]:
    """A file that takes the name `out` when the block ends well, and is removed otherwise.

    What a killed writer left under the temporary name is overwritten; a living one makes
    this raise CmfIoError, as does anything the system refuses. With `waits` it is waited
    for instead, and what it wrote is replaced in turn.
    """
    partial = partial_path(out)
    try:
        with _claimed(partial, waits=waits) as file:
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
def replacing_folder(out: Path) -> Iterator[Path]:
    """A new folder that takes the name `out` when the block ends well, else disappears.

    `out` may be an empty folder. The files in it should be synced by who writes them. What
    a killed writer left is removed first; a living one makes this raise CmfIoError.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CmfError(f"{out}: is there already; name a new folder")
    partial = partial_path(out)
    try:
        partial.mkdir(exist_ok=True)
        handle = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in partial.iterdir():
                left.unlink()
            try:
                yield partial
                os.fsync(handle)
                partial.replace(out)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
        finally:
            os.close(handle)
        _sync_folder(out.parent)
    except BlockingIOError:
        raise CmfIoError(f"{partial}: another program is writing this folder") from None
    except OSError as error:
        raise CmfIoError(f"{out}: can't be written: {error}") from error


@contextlib.contextmanager
def _claimed(partial: Path, *, waits: bool) -> Iterator[BinaryIO]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(partial, flags, 0o666), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            raise CmfIoError(f"{partial}: another program is writing this file") from None
        # Another writer may have renamed this very file between our open and our lock.
        if _is_named(file.fileno(), partial):
            file.truncate(0)
            yield file
            return
    if not waits:
        raise CmfIoError(f"{partial}: another program has just written this file")
    with _claimed(partial, waits=True) as file:
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
