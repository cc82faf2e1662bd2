"""A lock a process can hold on a key and cannot leave behind when it is killed."""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Hold(Protocol):
    """A lock that is held: what its holder may do with it."""

    @property
    def own_folder(self) -> str | None:
        """The name of what only this holder fills; None where nobody else can fill."""

    @property
    def is_lost(self) -> bool:
        """Whether it is known that another holds it now."""

    def announce(self, names: Iterable[str]) -> None:
        """Say which artifacts ("stage/key") are being read under it."""

    def confirm(self) -> None:
        """LeaseLost if another may hold it now; called right before publishing."""


@dataclass(frozen=True)
class FileHold:
    """A lock file held with flock: the kernel takes it from nobody who lives."""

    path: Path
    own_folder: None = None
    is_lost: bool = False

    def announce(self, names: Iterable[str]) -> None:
        """Written into the lock file itself, a line each."""
        announce(self.path, names)

    def confirm(self) -> None:
        """Nothing to ask."""


def announce(lock: Path, names: Iterable[str]) -> None:
    """Say, as the holder of a lock file, which artifacts ("stage/key") are being read."""
    lock.write_text("".join(f"{name}\n" for name in names))


@contextmanager
def key_lock(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[FileHold]:
    """Hold the lock file `path` alone, among this machine's processes and threads.

    Waits without limit; `on_wait` is called once if someone else holds it. The kernel frees
    the lock when its holder dies, however it dies. Not re-entrant: a holder that asks again
    waits for itself. The file is never deleted: a waiter would hold a name that nobody else
    sees.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _acquire(handle, on_wait)
        yield FileHold(path)
    finally:
        os.close(handle)


def _acquire(handle: int, on_wait: Callable[[], None] | None) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if on_wait is not None:
            on_wait()
        fcntl.flock(handle, fcntl.LOCK_EX)
