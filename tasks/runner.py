"""Has workers make artifacts ahead of the run that then finds them, as any rerun would.

What is sent are stage calls: the keys, locks and bytes are those of a run without workers,
and a run that is cut has what was finished.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from store.ledger import StageEvent
from store.store import Store
from tasks.errors import RunnerError
from tasks.progress import Bar
from tasks.runtime import Runtime
from tasks.work import Order, Outcome, Site, Told, Work

LOOK_EVERY_S = 0.5
ALONE_FOR_S = 60.0  # without any worker, before a run gives up
SEEN_WITHIN_S = 60.0


class Pool(Protocol):
    """The workers of an open cluster."""

    def width(self) -> int:
        """How many orders can be under way at once, now."""

    def submit(self, order: Order) -> "Future[Outcome]":
        """Have a worker carry it out, on another one if that dies."""

    def told(self) -> list[Told]:
        """What workers said since this was last asked."""


def make_ahead(works: Sequence[Work], bar: Bar, runtime: Runtime) -> None:
    """Has workers do all of these; `bar` and the run's lines tell how far they are.

    RunnerError if one failed, or the cluster is gone; Stopped if the run was asked to stop.
    The run's ledger tells of what was made as if it had been made here.
    """
    from tasks.pools import open_pool  # dask and ray are slow to import

    with (
        _site(runtime) as site,
        open_pool(runtime.runner, runtime.device) as pool,
        runtime.stop.heeded(),
    ):
        _Ahead(pool, site, bar, runtime, works).run()


@contextmanager
def _site(runtime: Runtime) -> Iterator[Site]:
    """What workers must share with this run, and a mark in its store while they work."""
    root = runtime.store.root
    mark = Path("locks") / f"seen-{uuid4().hex}"
    (root / mark).parent.mkdir(parents=True, exist_ok=True)
    (root / mark).touch()
    try:
        yield Site(
            root=root,
            mark=str(mark),
            device=runtime.device,
            threads=runtime.runner.threads,
            head_budget_bytes=runtime.head_budget_bytes,
            placement=runtime.placement,
            slots=None if runtime.slots is None else runtime.slots.for_workers(),
        )
    finally:
        (root / mark).unlink(missing_ok=True)


@dataclass
class _Ahead:
    """Orders that go out, as many as there are workers, and what comes back."""

    pool: Pool
    site: Site
    bar: Bar
    runtime: Runtime
    works: Sequence[Work]
    _under_way: "dict[Future[Outcome], int]" = field(default_factory=dict)
    _done: dict[int, int] = field(default_factory=dict)  # of each work, told so far
    _worker: dict[int, str] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)
    _alone_since: float | None = None

    def run(self) -> None:
        """Until all is done, or one order failed."""
        waiting = deque(range(len(self.works)))
        try:
            while waiting or self._under_way:
                left = len(waiting) + len(self._under_way)
                self.runtime.stop.check(f"with {left} orders to workers left")
                self._send(waiting)
                finished, _ = wait(self._under_way, LOOK_EVERY_S, FIRST_COMPLETED)
                self._hear()
                for future in finished:
                    self._finish(self._under_way.pop(future), future)
        finally:
            for future in self._under_way:
                future.cancel()

    def _send(self, waiting: deque[int]) -> None:
        width = self.pool.width()
        if not width:
            self._refuse_to_wait()
            time.sleep(0 if self._under_way else LOOK_EVERY_S)
            return
        self._alone_since = None
        while waiting and len(self._under_way) < width:
            place = waiting.popleft()
            order = Order(place, self.works[place], self.site)
            self._under_way[self.pool.submit(order)] = place

    def _refuse_to_wait(self) -> None:
        now = time.monotonic()
        self._alone_since = self._alone_since or now
        if now - self._alone_since > ALONE_FOR_S:
            raise RunnerError(
                f"{self.runtime.runner.kind}: the cluster has had no worker for "
                f"{ALONE_FOR_S:.0f} s; start some and run again, what is finished is kept"
            )

    def _hear(self) -> None:
        for told in self.pool.told():
            if told.text is not None and told.text not in self._said:
                self._said.add(told.text)  # workers that are alike say the same
                self.runtime.progress.say(told.text)
            if told.done is not None:
                self._note_worker(told)
                self._count(told.place, told.done)

    def _note_worker(self, told: Told) -> None:
        before = self._worker.setdefault(told.place, told.worker)
        if before != told.worker:
            self._worker[told.place] = told.worker
            self.runtime.progress.say(
                f"{self.works[told.place].title}: its worker ({before}) is gone; "
                f"begun again on {told.worker}"
            )

    def _count(self, place: int, done: int) -> None:
        """Move the bar on; an order begun again counts from where the first one was."""
        done = min(done, self.works[place].size)
        before = self._done.get(place, 0)
        if done > before:
            self._done[place] = done
            self.bar.advance(done - before)

    def _finish(self, place: int, future: "Future[Outcome]") -> None:
        title = self.works[place].title
        try:
            outcome = future.result()
        except CancelledError:
            raise RunnerError(
                f"{title}: the {self.runtime.runner.kind} cluster is gone; start it and "
                "run again, what is finished is kept"
            ) from None
        except Exception as error:
            raise RunnerError(
                f"{title}: {self.runtime.runner.kind} gave it up: {error}; see the "
                "workers' logs (the kernel kills one that is out of memory), then run "
                "again, what is finished is kept"
            ) from error
        if outcome.error is not None:
            failed = RunnerError(f"{title}: worker {outcome.worker}: {outcome.error}")
            failed.add_note(outcome.trace)
            raise failed
        self._count(place, self.works[place].size)
        for event in outcome.events:
            _wait_until_seen(self.runtime.store, event)
        self.runtime.ledger.made_elsewhere(outcome.events)


def _wait_until_seen(store: Store, event: StageEvent) -> None:
    """Returns once a worker's record shows here: a shared file system may lag behind."""
    record = store.record_path(event.name, event.key)
    for _ in range(round(SEEN_WITHIN_S / LOOK_EVERY_S)):
        if record.exists():
            return
        time.sleep(LOOK_EVERY_S)
    raise RunnerError(
        f"{record}: a worker wrote it {SEEN_WITHIN_S:.0f} s ago and it does not show here; "
        "is the store's folder the same file system on every machine?"
    )
