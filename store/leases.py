"""A lock that holds across machines: a lease its holder keeps alive, fenced by numbers.

Who makes the file of the next number holds the lease; that making is the board's one
atomic step. A holder counts beats. No clock of another machine is believed: a lease is dead
once an observer, by its own clock, saw its beats stand still for long enough. Whoever was
taken over meets a higher number when it confirms, before it publishes.
"""

import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import Field, ValidationError

from store.errors import LeaseLost
from store.manifest import Stored

Seconds = Annotated[float, Field(gt=0)]
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class LeaseTimes(Stored):
    """How often a holder beats, how long it may stand still, how often a waiter looks."""

    beat_s: Seconds = 5.0
    still_s: Seconds = 60.0
    look_s: Seconds = 1.0


class Said(Stored):
    """What the file of a lease says: who, how many beats, what is being read for it.

    `token` alone is the holder's identity; the rest is for whoever wants to know.
    """

    token: str
    host: str
    pid: int
    boot: str
    beats: int = 0
    is_free: bool = False
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """The last number of a lease and what was said under it; None if it can't be read."""

    number: int
    said: Said | None

    @property
    def is_held(self) -> bool:
        """Whether someone holds it, or held it when it died."""
        return self.said is None or not self.said.is_free


class Board(Protocol):
    """Where leases lie: a shared folder, or a bucket. Numbers of a name count from 1."""

    @property
    def where(self) -> str:
        """Which folder or bucket it is, for errors."""

    def create(self, name: str, number: int, data: bytes) -> bool:
        """Whether this call, and no other, made that number's file, whole."""

    def write(self, name: str, number: int, data: bytes) -> None:
        """Replace the file whole."""

    def read(self, name: str, number: int) -> bytes | None:
        """What it holds; None if it is gone."""

    def numbers(self, name: str) -> list[int]:
        """The numbers there are now, in no order."""

    def remove(self, name: str, number: int) -> None:
        """Delete the file if it is there."""

    def names(self) -> list[str]:
        """Every lease there is."""


def latest(board: Board, name: str) -> Entry | None:
    """The highest number and its word, below which nothing counts; None if it has none."""
    while numbers := board.numbers(name):
        number = max(numbers)
        data = board.read(name, number)
        if data is not None:
            return Entry(number, _parsed(data))
        time.sleep(0.001)  # its holder went on to the next number in between
    return None


def _parsed(data: bytes) -> Said | None:
    try:
        return Said.model_validate_json(data)
    except ValidationError:
        return None  # cut short on a full disk: it never beats again and dies by that


@dataclass
class Watch:
    """What this process saw of others' leases, and since when that has not changed."""

    times: LeaseTimes
    clock: Callable[[], float] = time.monotonic
    _seen: dict[str, tuple[Entry, float]] = field(default_factory=dict)

    def is_dead(self, name: str, entry: Entry) -> bool:
        """Whether a lease has stood still for `still_s` under these eyes."""
        now = self.clock()
        before = self._seen.get(name)
        if before is None or before[0] != entry:
            self._seen[name] = (entry, now)
            return False
        return now - before[1] >= self.times.still_s

    def living(self, board: Board, *, waits: bool) -> dict[str, Entry]:
        """The leases that are held, but for those known to be dead.

        With `waits` each is watched until it moves or has stood still for long enough.
        """
        open_ones = {
            name: entry
            for name in board.names()
            if (entry := latest(board, name)) is not None
        }
        found: dict[str, Entry] = {}
        while open_ones:
            for name, first in list(open_ones.items()):
                now = latest(board, name)
                if now is None or not now.is_held or self.is_dead(name, now):
                    del open_ones[name]
                elif now != first or not waits:
                    found[name] = now
                    del open_ones[name]
            if open_ones:
                time.sleep(self.times.look_s)
        return found


class Lease:
    """A lease this process holds, and the thread that keeps it beating."""

    def __init__(self, board: Board, name: str, number: int, said: Said) -> None:
        self._board, self._name, self._number, self._said = board, name, number, said
        self._guard = threading.Lock()
        self._ends, self._lost = threading.Event(), threading.Event()

    @property
    def own_folder(self) -> str:
        """A name that no other holder of anything has ever had."""
        return self._said.token

    @property
    def is_lost(self) -> bool:
        """Whether another holds it now; looked up, as a beat may not have come by yet."""
        with self._guard, suppress(Exception):  # a board that is away says nothing
            self._look()
        return self._lost.is_set()

    def announce(self, names: Iterable[str]) -> None:
        """Say which artifacts ("stage/key") are being read under it."""
        self._say(reads=tuple(sorted(names)))

    def confirm(self) -> None:
        """Take the next number, which only works while nobody else has; LeaseLost else.

        Called right before something is published: waiters then wait anew.
        """
        with self._guard:
            following = self._said.model_copy(update={"beats": self._said.beats + 1})
            if self._lost.is_set() or not _taken(
                self._board, self._name, self._number + 1, following
            ):
                self._lost.set()
                raise LeaseLost(self._name, self._board.where)
            self._said = following
            self._number += 1

    def _say(self, **changes: object) -> None:
        with self._guard:
            if self._lost.is_set():
                return
            changes = {"beats": self._said.beats + 1, **changes}
            self._said = self._said.model_copy(update=changes)
            data = self._said.model_dump_json().encode()
            self._board.write(self._name, self._number, data)
            self._look()

    def _look(self) -> None:
        if max(self._board.numbers(self._name), default=0) > self._number:
            self._lost.set()

    def _beat(self, every_s: float) -> None:
        while not self._ends.wait(every_s) and not self._lost.is_set():
            # A board that is away for a moment is no loss: `confirm` decides.
            with suppress(Exception):
                self._say()

    @contextmanager
    def _beating(self, every_s: float) -> Iterator[None]:
        heart = threading.Thread(target=self._beat, args=(every_s,), daemon=True)
        heart.start()
        try:
            yield
        finally:
            self._ends.set()
            heart.join()
            with suppress(Exception):  # others then wait until it has stood still
                self._say(is_free=True)


@contextmanager
def hold_lease(
    board: Board, name: str, watch: Watch, on_wait: Callable[[], None] | None = None
) -> Iterator[Lease]:
    """Hold the lease alone, among machines; waits for a living holder without limit.

    `on_wait` is called once if someone else holds it. Not re-entrant.
    """
    said = _about_us()
    while True:
        last = latest(board, name)
        number = 1 if last is None else last.number + 1
        is_held = last is not None and last.is_held and not watch.is_dead(name, last)
        if not is_held and _taken(board, name, number, said):
            break
        if is_held and on_wait is not None:
            on_wait()
            on_wait = None
        time.sleep(watch.times.look_s)
    lease = Lease(board, name, number, said)
    with lease._beating(watch.times.beat_s):
        yield lease


def _taken(board: Board, name: str, number: int, said: Said) -> bool:
    """Whether the number is now ours and the highest; then what lies below it goes.

    One that slept may make a number that was given up long ago: higher ones then tell.
    The highest is never removed, so numbers never start anew.
    """
    if not board.create(name, number, said.model_dump_json().encode()):
        return False
    numbers = board.numbers(name)
    if max(numbers, default=number) > number:
        board.remove(name, number)
        return False
    for old in numbers:
        if old < number:
            board.remove(name, old)
    return True


def _about_us() -> Said:
    try:
        boot = BOOT_ID.read_text().strip()
    except OSError:
        boot = ""
    return Said(
        token=secrets.token_hex(16), host=platform.node(), pid=os.getpid(), boot=boot
    )
