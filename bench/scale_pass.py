"""A trunk pass over many workers, event by event: who waits for what, and how long.

A worker takes the next shard from one queue, reads the trunk before its first, computes,
writes the rows, then its record, as `tasks.trunk_pass` does. Workers share two links, the
model file's and the store's, in equal parts.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Link:
    """Bytes a second that all workers get together, and what one of them takes at most."""

    total: float = math.inf
    each: float = math.inf


@dataclass(frozen=True)
class PassWork:
    """A pass over `shards` equal shards; times in seconds.

    `load_bytes` are read once by each worker that gets a shard. `dispatch_s` is spent by
    the one process that hands the shards out, one after the other.
    """

    shards: int
    compute_s: float
    shard_bytes: float = 0.0
    load_bytes: float = 0.0
    record_s: float = 0.0
    dispatch_s: float = 0.0
    model: Link = Link()
    store: Link = Link()


@dataclass
class PassTimes:
    """How long a pass took, and the mean worker's share of it in each state.

    `seconds` is the sum of the other fields: `waiting` is for a shard to be handed out,
    `idle` after the worker's last one.
    """

    seconds: float = 0.0
    load: float = 0.0
    compute: float = 0.0
    store: float = 0.0
    record: float = 0.0
    waiting: float = 0.0
    idle: float = 0.0


def simulate(work: PassWork, workers: int) -> PassTimes:
    """The pass on so many workers, from the first shard handed out to the last record."""
    return _Pass(work, workers).run()


@dataclass
class _SharedLink:
    """Transfers under way; each has had `_given` bytes more than when it began.

    As all get the same rate, the next to end is the one that needs the least in that count,
    so a heap finds it however often the rate changes.
    """

    link: Link
    _given: float = 0.0
    _now: float = 0.0
    _ends: list[tuple[float, int]] = field(default_factory=list)

    def begin(self, now: float, worker: int, size_bytes: float) -> None:
        self._advance(now)
        heapq.heappush(self._ends, (self._given + size_bytes, worker))

    def next_end(self) -> float:
        """When the next transfer ends if none begins before, inf without one."""
        if not self._ends:
            return math.inf
        return self._now + max(self._ends[0][0] - self._given, 0.0) / self._rate()

    def finish(self, now: float) -> int:
        """End that transfer; whose it was."""
        self._advance(now)
        end, worker = heapq.heappop(self._ends)
        self._given = max(self._given, end)
        return worker

    def _rate(self) -> float:
        return min(self.link.each, self.link.total / len(self._ends))

    def _advance(self, now: float) -> None:
        if self._ends and now > self._now:
            self._given += (now - self._now) * self._rate()
        self._now = now


class _Pass:
    """The moving parts of one `simulate`."""

    def __init__(self, work: PassWork, workers: int) -> None:
        self.work, self.workers = work, workers
        self.model, self.store = _SharedLink(work.model), _SharedLink(work.store)
        self.left, self.handing_until = work.shards, 0.0
        self.loaded: set[int] = set()
        self.since = dict.fromkeys(range(workers), 0.0)
        # The number keeps equal moments in the order in which they came up.
        self.events: list[tuple[float, int, int, Callable[[float, int], None]]] = []
        self.number = 0
        self.spent = PassTimes()

    def run(self) -> PassTimes:
        for worker in range(self.workers):
            self.take(0.0, worker)
        now = 0.0
        while (soonest := self._soonest()) is not None:
            now = soonest[0]
            soonest[1](now)
        self.spent.idle = sum(now - since for since in self.since.values())
        parts = {name: value / self.workers for name, value in vars(self.spent).items()}
        return PassTimes(**{**parts, "seconds": now})

    def _soonest(self) -> tuple[float, Callable[[float], None]] | None:
        at = self.events[0][0] if self.events else math.inf
        ends = [
            (at, self._fixed),
            (self.model.next_end(), self._read),
            (self.store.next_end(), self._written),
        ]
        found = min(ends, key=lambda end: end[0])
        return None if found[0] == math.inf else found

    def _fixed(self, now: float) -> None:
        _, _, worker, then = heapq.heappop(self.events)
        then(now, worker)

    def _at(self, when: float, worker: int, then: Callable[[float, int], None]) -> None:
        self.number += 1
        heapq.heappush(self.events, (when, self.number, worker, then))

    def take(self, now: float, worker: int) -> None:
        """Ask for the next shard; without one the worker is done."""
        if not self.left:
            return
        self.left -= 1
        self.handing_until = max(now, self.handing_until) + self.work.dispatch_s
        self._at(self.handing_until, worker, self._begin)

    def _begin(self, now: float, worker: int) -> None:
        self.spent.waiting += self._took(now, worker)
        if worker in self.loaded:
            self._at(now + self.work.compute_s, worker, self._computed)
            return
        self.loaded.add(worker)
        self.model.begin(now, worker, self.work.load_bytes)

    def _read(self, now: float) -> None:
        worker = self.model.finish(now)
        self.spent.load += self._took(now, worker)
        self._at(now + self.work.compute_s, worker, self._computed)

    def _computed(self, now: float, worker: int) -> None:
        self.spent.compute += self._took(now, worker)
        self.store.begin(now, worker, self.work.shard_bytes)

    def _written(self, now: float) -> None:
        worker = self.store.finish(now)
        self.spent.store += self._took(now, worker)
        self._at(now + self.work.record_s, worker, self._recorded)

    def _recorded(self, now: float, worker: int) -> None:
        self.spent.record += self._took(now, worker)
        self.take(now, worker)

    def _took(self, now: float, worker: int) -> float:
        """Seconds since the worker's last change of state, which is now."""
        since, self.since[worker] = self.since[worker], now
        return now - since
