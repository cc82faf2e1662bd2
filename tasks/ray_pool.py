"""Workers of ray: a cluster that is there, or processes started here."""

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

import ray
from ray.util.queue import Queue

from conf.machine import Device, without_ray_telemetry, workers_here
from conf.runner import Runner
from tasks.errors import RunnerError
from tasks.work import Order, Outcome, Told
from tasks.worker import carry_out

START_WITHIN_S = 120.0
RESTARTS = 3  # of a worker that dies, its order with it, before the run gives up
HERE = "127.0.0.1"
OBJECTS_BYTES = 128 << 20  # orders are small


class Hand:
    """One worker process: it carries out orders, and keeps its trunk in between."""

    def is_ready(self) -> bool:
        """Answers once the process is there."""
        return True

    def carry_out(self, order: Order, words: Queue) -> Outcome:
        """One order; what it says goes into the queue."""
        return carry_out(order, words.put_nowait)


@dataclass
class RayPool:
    """Actors, one order each at a time."""

    words: Queue
    hands: list[Any]  # ray's handles have no types
    _last: "list[Future[Outcome] | None]" = field(init=False)

    def __post_init__(self) -> None:
        self._last = [None] * len(self.hands)

    def width(self) -> int:
        """The actors; ray starts one that died anew."""
        return len(self.hands)

    def submit(self, order: Order) -> "Future[Outcome]":
        """Whoever is idle does it, again if it dies."""
        free = (at for at, last in enumerate(self._last) if last is None or last.done())
        at = next(free)
        future: Future[Outcome] = (
            self.hands[at].carry_out.remote(order, self.words).future()
        )
        self._last[at] = future
        return future

    def told(self) -> list[Told]:
        """What lies in the queue."""
        count = self.words.qsize()
        return self.words.get_nowait_batch(count) if count else []


@contextmanager
def ray_pool(runner: Runner, device: Device) -> Iterator[RayPool]:
    """A pool on the cluster that the runner names, or on processes of this machine."""
    with ExitStack() as opened:
        if not ray.is_initialized():
            opened.enter_context(_session(runner, device))
        words = Queue(actor_options={"num_cpus": 0})
        hands = _hands(runner, device)
        try:
            yield RayPool(words, hands)
        finally:
            for hand in hands:
                ray.kill(hand)  # and with it goes its trunk
            words.shutdown(force=True)


@contextmanager
def _session(runner: Runner, device: Device) -> Iterator[None]:
    """A ray that this process is part of while the `with` lasts."""
    with ExitStack() as opened:
        opened.enter_context(without_ray_telemetry())
        folder = opened.enter_context(
            TemporaryDirectory(prefix="mtp-heal-ray-", ignore_cleanup_errors=True)
        )
        opened.callback(ray.shutdown)  # also of what a start that failed has left
        try:
            _init(runner, device, folder)
        except Exception as error:  # ray has no class for it
            raise RunnerError(_failed_text(runner, error)) from error
        yield


def _init(runner: Runner, device: Device, folder: str) -> None:
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    if runner.cluster is not None:
        ray.init(address=runner.cluster, **quiet)
        return
    ray.init(
        address="local",  # else one that was started here, which is for `auto`
        num_cpus=workers_here(runner.workers, device),
        include_dashboard=False,
        object_store_memory=OBJECTS_BYTES,
        _node_ip_address=HERE,
        _temp_dir=folder,
        **quiet,
    )


def _failed_text(runner: Runner, error: Exception) -> str:
    if runner.cluster is None:
        return (
            f"ray did not start on this machine: {error}; run again when it is less busy, "
            "what is finished is kept"
        )
    return (
        f"no ray cluster answers at {runner.cluster}: {error}; start it with `ray start "
        "--head`, or leave runtime.cluster out for workers on this machine"
    )


def _hands(runner: Runner, device: Device) -> list[Any]:
    """One actor a card, or a node; those that ray has no room for are left out."""
    wanted = runner.workers or _room(runner, device)
    kind = ray.remote(
        num_cpus=1,
        num_gpus=1 if device == "cuda" else 0,
        max_restarts=RESTARTS,
        max_task_retries=RESTARTS,
        scheduling_strategy="SPREAD",
    )(Hand)
    asked = {
        hand.is_ready.remote(): hand for hand in [kind.remote() for _ in range(wanted)]
    }
    ready, late = ray.wait([*asked], num_returns=wanted, timeout=START_WITHIN_S)
    for one in late:
        ray.kill(asked[one])
    if not ready:
        raise RunnerError(
            f"ray started none of {wanted} workers in {START_WITHIN_S:.0f} s; `ray status` "
            "tells which cards and cores are free"
        )
    return [asked[one] for one in ready]


def _room(runner: Runner, device: Device) -> int:
    if runner.cluster is None:
        return workers_here(runner.workers, device)
    if device == "cuda":
        return int(ray.cluster_resources().get("GPU", 0))
    return sum(1 for node in ray.nodes() if node["Alive"])
