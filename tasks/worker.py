"""A worker's side of a run on dask or ray: one order at a time, one trunk kept between."""

import gc
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace

from tasks.errors import RunnerError
from tasks.model_file import open_model
from tasks.pass_trunk import PassTrunk
from tasks.runtime import Runtime
from tasks.work import Order, Outcome, Teller, Told, WorkerProgress

TELL_EVERY_S = 0.5
# A worker may have several threads; it has one device, and one trunk on it.
_ALONE = threading.Lock()


class Kept:
    """The trunk that a worker process holds from one order to the next."""

    def __init__(self) -> None:
        self._key: str | None = None
        self._trunk: PassTrunk | None = None

    def trunk(self, key: str, make: Callable[[], PassTrunk]) -> PassTrunk:
        """The trunk of this key: the one that is held, or a new one in its stead."""
        if self._trunk is None or self._key != key:
            self.drop()
            self._trunk, self._key = make(), key
        return self._trunk

    def drop(self) -> None:
        """Give its memory back."""
        if self._trunk is not None:
            self._trunk.__exit__()
        self._trunk = self._key = None


KEPT = Kept()


def carry_out(order: Order, tell: Teller) -> Outcome:
    """Does one order in this process; what went wrong is part of the outcome.

    So an error needs no class that the asker could unpickle, and names its worker.
    """
    worker = f"{socket.gethostname()}, process {os.getpid()}"
    told = Told(order.place, worker)
    with _ALONE:
        tell(replace(told, done=0))
        try:
            runtime = order.site.runtime(WorkerProgress(tell, told))
            _refuse_other_models(order, runtime)
            order.work(runtime, ToldBar(tell, told))
        except Exception as error:  # noqa: BLE001 — whatever it is, the asker raises it
            KEPT.drop()
            kind = "" if isinstance(error, RunnerError) else f"{type(error).__name__}: "
            return Outcome(worker, (), f"{kind}{error}", traceback.format_exc())
        return Outcome(worker, tuple(runtime.ledger.events))


def let_go() -> None:
    """Give the trunk's memory back, now that a pass is over; waits for nobody.

    Where an order is still under way, of a run that was stopped, that is done after it.
    """
    if _ALONE.acquire(blocking=False):
        try:
            _give_back()
        finally:
            _ALONE.release()
    else:
        threading.Thread(target=_let_go_later, daemon=True).start()


def _let_go_later() -> None:
    with _ALONE:
        _give_back()


def _give_back() -> None:
    KEPT.drop()
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()  # else the card's memory stays this process's


def _refuse_other_models(order: Order, runtime: Runtime) -> None:
    """RunnerError where another model lies under a path: its rows get no key of ours."""
    for part in order.work.models:
        digests = open_model(part.path, runtime, part.patch).digests
        if part.content_digest not in (digests.trunk, digests.draft, digests.content):
            raise RunnerError(
                f"{part.path} is another model here than where the run was started; mount "
                "or copy the same one"
            )


@dataclass
class ToldBar:
    """The bar of an order: what is done of it is told, twice a second at most."""

    tell: Teller
    told: Told
    done: int = 0
    last: float = 0.0

    def advance(self, count: int = 1, **values: float) -> None:
        """Count, and tell if it is time."""
        self.done += count
        now = time.monotonic()
        if now - self.last >= TELL_EVERY_S:
            self.last = now
            self.tell(replace(self.told, done=self.done))

    def skip(self, count: int) -> None:
        """What another run made meanwhile is done as well."""
        self.advance(count)
