"""A lock a process can hold on a key and cannot leave behind when it is killed."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def key_lock(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path` alone, among processes and threads; waits without limit.

    `on_wait` is called once if someone else holds it. The kernel frees the lock when its
    holder dies, however it dies. Not re-entrant: a holder that asks again waits for itself.
    The file is never deleted: a waiter would hold a name that nobody else sees.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _acquire(handle, on_wait)
        yield
    finally:
        os.close(handle)


def _acquire(handle: int, on_wait: Callable[[], None] | None) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if on_wait is not None:
            on_wait()
        fcntl.flock(handle, fcntl.LOCK_EX)
