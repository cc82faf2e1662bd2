"""Workers of dask: a cluster that is there, or processes started here."""

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import dask
from distributed import Client, Nanny, Scheduler, SpecCluster, get_worker
from distributed.cfexecutor import ClientExecutor

from conf.machine import Device, card_names, workers_here
from conf.runner import Runner
from tasks.errors import RunnerError
from tasks.work import Order, Outcome, Told
from tasks.worker import carry_out, let_go

ANSWER_WITHIN_S = 10
HERE = "127.0.0.1"
QUIET = {
    "distributed.scheduler.http.routes": [],  # a scheduler of ours serves no pages
    "distributed.worker.http.routes": [],
    # A process that imports torch or loads a trunk is busy, not ill.
    "distributed.admin.tick.limit": "10 min",
}


def work_on(order: Order, topic: str) -> Outcome:
    """What a dask worker runs: one order, with its words under the run's topic."""
    worker = get_worker()

    def tell(told: Told) -> None:
        # In a field of its own: dask puts its name of the worker beside it.
        worker.log_event(topic, {"told": asdict(told)})

    return carry_out(order, tell)


@dataclass
class DaskPool:
    """A client's workers, at most `most` of them at once."""

    client: Client
    most: int | None
    topic: str = field(default_factory=lambda: f"mtp-heal-{uuid4().hex}")
    _heard: "deque[Told]" = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._executor = ClientExecutor(self.client, pure=False)
        self.client.subscribe_topic(self.topic, self._hear)

    def width(self) -> int:
        """Workers that the scheduler knows of; none while it is away."""
        workers = len(self.client.scheduler_info(n_workers=-1)["workers"])
        return workers if self.most is None else min(workers, self.most)

    def submit(self, order: Order) -> "Future[Outcome]":
        """Dask gives it to whoever is least busy, and to another if that one dies."""
        future: Future[Outcome] = self._executor.submit(work_on, order, self.topic)
        return future

    def told(self) -> list[Told]:
        """What came under the topic."""
        return [self._heard.popleft() for _ in range(len(self._heard))]

    def _hear(self, event: tuple[float, Mapping[str, Any]]) -> None:
        self._heard.append(Told(**event[1]["told"]))


@contextmanager
def dask_pool(runner: Runner, device: Device) -> Iterator[DaskPool]:
    """A pool on the scheduler that the runner names, or on processes of this machine."""
    with dask.config.set(QUIET), _unsaid():
        if runner.cluster is None:
            with _cluster_here(runner, device) as cluster, _connected(cluster) as client:
                yield DaskPool(client, runner.workers)
            return
        with _connected(runner.cluster) as client:
            try:
                yield DaskPool(client, runner.workers)
            finally:
                client.run(let_go, on_error="ignore")


@contextmanager
def _unsaid() -> Iterator[None]:
    """Keeps dask's own lines from the user's: what matters comes as an error."""
    log = logging.getLogger("distributed")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


@contextmanager
def _connected(address: str | SpecCluster) -> Iterator[Client]:
    try:
        client = Client(address, timeout=ANSWER_WITHIN_S, set_as_default=False)
    except OSError as error:
        raise RunnerError(
            f"no dask scheduler answers at {address} ({error}); start it with `dask "
            "scheduler`, or leave runtime.cluster out for workers on this machine"
        ) from error
    with client:
        yield client


@contextmanager
def _cluster_here(runner: Runner, device: Device) -> Iterator[SpecCluster]:
    """Processes on loopback, one a card, without a dashboard; gone with the `with`."""
    quiet = {"host": HERE, "dashboard": False, "dashboard_address": f"{HERE}:0"}
    with TemporaryDirectory(prefix="mtp-heal-dask-") as scratch:
        each = {
            **quiet,
            "nthreads": 1,
            "memory_limit": None,  # a trunk is as large as it is: the kernel decides
            "local_directory": scratch,
            "silence_logs": logging.ERROR,
        }
        count = workers_here(runner.workers, device)
        cards = card_names(count) if device == "cuda" else [None] * count
        workers = {
            place: {"cls": Nanny, "options": each | _env_of(card)}
            for place, card in enumerate(cards)
        }
        scheduler = {"cls": Scheduler, "options": quiet | {"port": 0}}
        with SpecCluster(workers, scheduler, silence_logs=logging.ERROR) as cluster:
            yield cluster


def _env_of(card: str | None) -> dict[str, dict[str, str]]:
    return {} if card is None else {"env": {"CUDA_VISIBLE_DEVICES": card}}
