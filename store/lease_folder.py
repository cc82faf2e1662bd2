"""Leases in a folder that several machines share."""

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

from store.atomic import flush, replace_whole
from store.errors import ArtifactError
from store.leases import LeaseTimes

MARK = "leases.json"
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS}


class FolderBoard:
    """A lease `stage/key` is the folder `locks/stage/key/`, a file a number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.where = str(folder)

    def create(self, name: str, number: int, data: bytes) -> bool:
        """Whether this call made the file: written beside, then linked, as NFS needs it."""
        path = self._path(name, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{secrets.token_hex(8)}.partial")
        try:
            beside.write_bytes(data)
            flush(beside)
            os.link(beside, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in NO_LINKS:
                raise ArtifactError(
                    f"{path.parent}: this file system makes no hard links, which leases "
                    "need; keep the store elsewhere, or set runtime.locks: flock"
                ) from error
            # An answer that was lost on the way: two names mean that it was made.
            if not beside.exists() or beside.stat().st_nlink != 2:
                raise
        finally:
            beside.unlink(missing_ok=True)
        return True

    def write(self, name: str, number: int, data: bytes) -> None:
        """Replace the file whole; a reader on another machine opens it anew."""
        path = self._path(name, number)
        replace_whole(path, data)

    def read(self, name: str, number: int) -> bytes | None:
        """What it holds; None if it is gone."""
        try:
            return self._path(name, number).read_bytes()
        except FileNotFoundError:
            return None

    def numbers(self, name: str) -> list[int]:
        """The numbers there are now."""
        try:
            found = [path.name for path in (self.folder / name).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [int(one) for one in found if one.isdecimal()]

    def remove(self, name: str, number: int) -> None:
        """Delete the file if it is there."""
        with suppress(FileNotFoundError):
            self._path(name, number).unlink()

    def names(self) -> list[str]:
        """Every lease there is, as "stage/key"."""
        folders = (path for path in self.folder.glob("*/*") if path.is_dir())
        return sorted(path.relative_to(self.folder).as_posix() for path in folders)

    def _path(self, name: str, number: int) -> Path:
        return self.folder / name / f"{number:08d}"


def marked_times(locks: Path) -> LeaseTimes | None:
    """The times everyone who shares this store keeps to; None where it has no leases."""
    try:
        data = (locks / MARK).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return LeaseTimes.model_validate_json(data)
    except ValueError as error:
        raise ArtifactError(
            f"{locks / MARK}: cannot be read, so nobody knows how this store is locked; "
            "stop all runs on it and delete that file"
        ) from error


def mark_times(locks: Path, times: LeaseTimes) -> LeaseTimes:
    """Say that this store is locked by leases; the times that hold, the first one's."""
    if (known := marked_times(locks)) is not None:
        return known
    locks.mkdir(parents=True, exist_ok=True)
    beside = locks / f"{secrets.token_hex(8)}.partial"
    try:
        beside.write_text(times.model_dump_json())
        with suppress(FileExistsError):
            os.link(beside, locks / MARK)
    finally:
        beside.unlink(missing_ok=True)
    return marked_times(locks) or times
