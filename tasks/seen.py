"""Files of a user's that a run reads more than once: told apart from what took their place.

A stage's key says what was in them when their digests were taken. What is read later must
still be that, else an artifact lies in the store under the key of another.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cmfio.hf_folder import folder_files
from cmfio.reader import Container
from tasks.errors import InputError


@dataclass(frozen=True)
class Seen:
    """A file as it was at one moment; size in bytes."""

    path: Path
    size: int
    mtime_ns: int
    inode: int
    ctime_ns: int

    def is_another(self, now: "Seen") -> bool:
        """Whether it was written to since, or another has its name.

        A new inode alone says nothing, FUSE gives one when it likes; nor does a new ctime:
        links and modes do that. Files from archives may all have one time.
        """
        is_written = (self.size, self.mtime_ns) != (now.size, now.mtime_ns)
        return is_written or (self.inode != now.inode and self.ctime_ns != now.ctime_ns)


def look_at(paths: Iterable[Path]) -> tuple[Seen, ...]:
    """The files that can be looked at, as they are; of others opening says why not."""
    found = []
    for path in paths:
        try:
            found.append(_seen(path, path.stat()))
        except OSError:
            continue
    return tuple(found)


def look_at_open(path: Path, handle: int) -> Seen:
    """An open file, whatever has its name now."""
    return _seen(path, os.fstat(handle))


def look_at_container(container: Container) -> tuple[Seen, ...]:
    """The open files of a container."""
    return tuple(look_at_open(file.path, file.file.fileno()) for file in container.files)


def look_at_model(path: Path, before: tuple[Seen, ...] = ()) -> tuple[Seen, ...]:
    """A checkpoint's files as they are now; else the file, or those there were before."""
    if os.path.isdir(path):  # noqa: PTH112 — also for a name no file system takes
        return look_at(folder_files(path))
    return look_at([one.path for one in before] or [path])


def refuse_changed(before: Iterable[Seen], now: Iterable[Seen]) -> None:
    """InputError that names a file which came, went or is another; a `touch` counts."""
    was, are = ({one.path: one for one in some} for some in (before, now))
    for path in sorted(was.keys() | are.keys()):
        if path not in was or path not in are or was[path].is_another(are[path]):
            raise InputError(
                f"{path}: changed while the run was at it, which ends here rather than mix "
                "two versions; run again"
            )


def _seen(path: Path, status: os.stat_result) -> Seen:
    return Seen(
        path,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        inode=status.st_ino,
        ctime_ns=status.st_ctime_ns,
    )
