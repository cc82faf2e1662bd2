"""A file appears whole or not at all: written as `NAME.partial`, synced, renamed."""

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from cmfio.errors import BadPath, CmfIoError, SameFile
from cmfio.opening import odd_kind, reason


def real_path(out: Path) -> Path:
    """`out`, or where a link of that name leads: that is replaced, and the link stays."""
    return out.resolve() if out.is_symlink() else out


def partial_path(out: Path) -> Path:
    """Where `out` is written before it gets its name."""
    real = real_path(out)
    return real.with_name(real.name + ".partial")


def check_output(out: Path, sources: Iterable[Path] = ()) -> None:
    """Raise, before any work, unless a file may be written and then take the name `out`.

    SameFile if that would touch one of `sources` (or what is in one that is a folder), by
    any path or link; BadPath as `check_replaceable`, and if there is no folder for it.
    """
    _refuse_odd(out)
    with _naming(out):
        real = real_path(out)
        for source in sources:
            if _touches(real, source):
                what = "a file in the input" if source.is_dir() else "the input itself"
                raise SameFile(f"{out}: is {what} ({source}); name another output")
        if not real.parent.is_dir():
            raise BadPath(f"{out}: there is no folder {real.parent}; make it first")
    check_replaceable(out)


def check_replaceable(out: Path) -> None:
    """BadPath if something is at `out` that a file can't or shouldn't take the place of.

    That is all but a regular file that may be written to, or a link that leads to one.
    """
    _refuse_odd(out)
    with _naming(out):
        partial = partial_path(out)
        if out.exists() and not out.stat().st_mode & 0o222:
            raise BadPath(
                f"{out}: is read-only; make it writable if it may be replaced, or name "
                "another output"
            )
        if os.path.lexists(partial) and not stat.S_ISREG(partial.lstat().st_mode):
            raise BadPath(f"{partial}: is in the way of a new {out.name}; move it")


@contextlib.contextmanager
def replacing(out: Path, *, waits: bool = False) -> Iterator[BinaryIO]:
    """A file that takes the name `out` when the block ends well, and is removed otherwise.

    What a killed writer left under the temporary name is overwritten; a living one makes
    this raise CmfIoError, as does anything the system refuses. With `waits` it is waited
    for instead, and what it wrote is replaced in turn. BadPath as `check_output`.
    """
    check_output(out)
    real, partial = real_path(out), partial_path(out)
    try:
        with _claimed(partial, waits=waits) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                partial.replace(real)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
        _sync_folder(real.parent)
    except OSError as error:
        raise _unwritten(out, error) from error


@contextlib.contextmanager
def replacing_folder(
    out: Path, *, waits: bool = False, replaces: bool = False
) -> Iterator[Path]:
    """A new folder that takes the name `out` when the block ends well, else disappears.

    `out` may be an empty folder, or with `replaces` any: the old one then goes when the new
    one is whole. The files in it should be synced by who writes them. What a killed writer
    left is removed first; a living one makes this raise CmfIoError, or is waited for. A
    link to a folder stays, and that folder is replaced.
    """
    _check_folder(out, replaces=replaces)
    real, partial = real_path(out), partial_path(out)
    try:
        with _claimed_folder(partial, waits=waits) as handle:
            for left in partial.iterdir():
                left.unlink()
            try:
                yield partial
                os.fsync(handle)
                _rename_folder(partial, real)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
        _sync_folder(real.parent)
    except BlockingIOError:
        raise CmfIoError(f"{partial}: another program is writing this folder") from None
    except OSError as error:
        raise _unwritten(out, error) from error


def _check_folder(out: Path, *, replaces: bool) -> None:
    """Raise, before any work, unless a folder may take the name `out`."""
    with _naming(out):
        if out.name in {"", ".."}:  # the working folder, the root, one above
            raise BadPath(f"{out}: can't be replaced; name a new folder")
        real = real_path(out)
        if not real.parent.is_dir():
            raise BadPath(f"{out}: there is no folder {real.parent}; make it first")
        if real.exists() and not (real.is_dir() and (replaces or not any(real.iterdir()))):
            raise BadPath(f"{out}: is there already; name a new folder")


@contextlib.contextmanager
def _naming(out: Path) -> Iterator[None]:
    """What the system says of a name that can't be: too long, a loop, no permission."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:  # the last for a loop of links
        raise BadPath(f"{out}: can't be written: {reason(error)}") from error


def _refuse_odd(out: Path) -> None:
    with _naming(out):
        try:
            kind = odd_kind(out.stat().st_mode)
        except FileNotFoundError:
            return
    if kind is not None:
        raise BadPath(f"{out}: is {kind}; give the path of a file")


def _touches(out: Path, source: Path) -> bool:
    """Whether writing `out`, a link's end, would change `source` or something in it."""
    if out.exists() and source.is_dir():
        return out.resolve().is_relative_to(source.resolve())
    targets = (out, partial_path(out))
    return any(target.exists() and target.samefile(source) for target in targets)


def _unwritten(out: Path, error: OSError) -> CmfIoError:
    kind = BadPath if isinstance(error, PermissionError) else CmfIoError
    return kind(f"{out}: can't be written: {reason(error)}")


@contextlib.contextmanager
def _claimed_folder(partial: Path, *, waits: bool) -> Iterator[int]:
    partial.mkdir(exist_ok=True)
    handle = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        is_own = _is_named(handle, partial)  # another may have renamed it meanwhile
        if is_own:
            yield handle
    finally:
        os.close(handle)
    if not is_own:
        with _claimed_folder(partial, waits=waits) as again:
            yield again


def _rename_folder(partial: Path, out: Path) -> None:
    """A folder can't take the name of a full one: that one steps aside, then goes."""
    aside = out.with_name(out.name + ".partial.old")  # a name nobody else would use
    if out.exists() and any(out.iterdir()):
        shutil.rmtree(aside, ignore_errors=True)
        out.rename(aside)
    partial.replace(out)
    shutil.rmtree(aside, ignore_errors=True)


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
