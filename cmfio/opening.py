"""Files that a user names, opened to be read: only files, and never waited for."""

import stat
from pathlib import Path
from typing import BinaryIO

from cmfio.errors import BadPath, FileNotFound

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


def open_regular(path: Path, wanted: str) -> BinaryIO:
    """The file at `path`, unbuffered; `wanted` says what to give instead of what isn't one.

    FileNotFound, or BadPath for a folder, a pipe, a device, or what the system refuses.
    """
    try:
        # Asked first: opening a pipe could take for ever, opening a device could do things.
        kind = odd_kind(path.stat().st_mode)
        if kind is None:
            return path.open("rb", buffering=0)
    except FileNotFoundError:
        raise FileNotFound(f"{path}: there is no such file; give {wanted}") from None
    except (OSError, ValueError) as error:
        raise BadPath(f"{path}: can't be read: {reason(error)}") from error
    raise BadPath(f"{path}: is {kind}; give {wanted}")


def read_regular(path: Path, wanted: str) -> bytes:
    """All bytes of a file; raises as `open_regular`."""
    with open_regular(path, wanted) as file:
        try:
            return file.read()
        except OSError as error:
            raise BadPath(f"{path}: can't be read: {reason(error)}") from error


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder; BadPath where the system doesn't say."""
    try:
        return path.is_dir()
    except OSError as error:
        raise BadPath(f"{path}: can't be read: {reason(error)}") from error


def odd_kind(mode: int) -> str | None:
    """What something is that isn't a regular file, for a text; None if it is one."""
    return None if stat.S_ISREG(mode) else KINDS.get(stat.S_IFMT(mode), "no file")


def reason(error: Exception) -> str:
    """The system's words, without the path that stands in front of them already."""
    return getattr(error, "strerror", None) or str(error)
