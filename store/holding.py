"""How a store is locked: with flock on one machine, with leases where several share it."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from store.keys import checked_key, checked_stage
from store.lease_folder import FolderBoard, mark_times, marked_times
from store.leases import LeaseTimes, Watch, hold_lease
from store.locks import Hold, key_lock

GATE = "gate"
GATE_LEASE = "gate/all"


class Locks:
    """The locks below a store's folder `locks/`, by stage and key.

    The first run that asks for leases marks the store; from then on everyone who opens it
    uses them, whatever they asked for, since a lease and a flock do not see each other.
    """

    def __init__(self, folder: Path, leases: LeaseTimes | None = None) -> None:
        self.folder = folder
        self._wanted = leases
        self._board = FolderBoard(folder)
        self._known: Watch | None = None

    def path(self, stage: str, key: str) -> Path:
        """The file that flock holds while an artifact is made or set aside."""
        return self.folder / checked_stage(stage) / f"{checked_key(key)}.lock"

    @contextmanager
    def held(
        self, stage: str, key: str, on_wait: Callable[[], None] | None = None
    ) -> Iterator[Hold]:
        """Hold the lock of an artifact alone; `on_wait` is called once if it is taken."""
        path, watch = self.path(stage, key), self._watch(marks=True)
        if watch is None:
            with key_lock(path, on_wait) as hold:
                yield hold
        else:
            with hold_lease(self._board, f"{stage}/{key}", watch, on_wait) as lease:
                yield lease

    @contextmanager
    def gate(self, *, alone: bool) -> Iterator[None]:
        """Held together by those that announce, and `alone` by who frees; for milliseconds.

        A lease has one holder, so with leases they announce one after another.
        """
        if (watch := self._watch(marks=True)) is not None:
            with hold_lease(self._board, GATE_LEASE, watch):
                yield
            return
        path = self.folder / GATE
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield
        finally:
            os.close(handle)

    def announced(self, *, waits: bool) -> dict[str, list[str]]:
        """What every lock that is held says of what is read under it, by "stage/key".

        A lease counts as held unless it was seen standing still; `waits` for seeing that.
        """
        found: dict[str, list[str]] = {}
        for path in self.folder.glob("*/*.lock"):
            if (said := _said_if_held(path)) is not None:
                found[f"{path.parent.name}/{path.stem}"] = said
        if (watch := self._watch()) is not None:
            for name, entry in watch.living(self._board, waits=waits).items():
                found[name] = [] if entry.said is None else [*entry.said.reads]
        return found

    def _watch(self, *, marks: bool = False) -> Watch | None:
        """What we saw of leases, if this store has them."""
        if self._known is None:
            if marks and self._wanted is not None:
                times: LeaseTimes | None = mark_times(self.folder, self._wanted)
            else:
                times = marked_times(self.folder)
            self._known = None if times is None else Watch(times)
        return self._known


def _said_if_held(path: Path) -> list[str] | None:
    """What its holder announced; None for a lock file that nobody holds."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return path.read_text(errors="replace").split()
    finally:
        os.close(handle)
    return None
