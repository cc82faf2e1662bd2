"""Workers as threads of this process: orders are pickled, as a cluster would send them."""

import pickle
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Unpack

import pytest

from conf.machine import Device
from conf.runner import Runner
from tasks.count import Counting
from tasks.progress import Bar, SilentProgress
from tasks.work import Order, Outcome, Told
from tasks.worker import carry_out, let_go

DASK = Runner("dask", 2, None, 1)


@dataclass
class Hands:
    """A pool of two threads, and what was asked of it."""

    orders: list[Order] = field(default_factory=list)
    heard: list[Told] = field(default_factory=list)
    count: int = 2
    opened: int = 0

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(2)

    def width(self) -> int:
        return self.count

    def submit(self, order: Order) -> "Future[Outcome]":
        self.orders.append(order)
        sent = pickle.loads(pickle.dumps(order))
        return self._threads.submit(carry_out, sent, self.heard.append)

    def told(self) -> list[Told]:
        found, self.heard[:] = [*self.heard], []
        return found

    @contextmanager
    def open(self, _runner: Runner, _device: Device) -> Iterator["Hands"]:
        self.opened += 1
        yield self
        let_go()


@dataclass
class Counted(SilentProgress):
    """Keeps what each bar was told: (advanced, skipped) by name."""

    bars: dict[str, list[int]] = field(default_factory=dict)

    @contextmanager
    def task(self, name: str, **how: Unpack[Counting]) -> Iterator[Bar]:
        yield _Tally(self.bars.setdefault(name, [0, 0]))


@dataclass
class _Tally:
    counts: list[int]

    def advance(self, count: int = 1, **values: float) -> None:
        self.counts[0] += count

    def skip(self, count: int) -> None:
        self.counts[1] += count


def in_threads(monkeypatch: pytest.MonkeyPatch, hands: Hands | None = None) -> Hands:
    """Has runs ask these hands, whatever cluster they name."""
    hands = hands or Hands()
    monkeypatch.setattr("tasks.pools.open_pool", hands.open)
    return hands
