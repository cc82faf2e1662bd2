"""What goes to a worker and what comes back: pickled by dask or ray, so all of it plain."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, Unpack

from conf.machine import Device, cuda_devices, idle_cores, limit_threads
from conf.runner import versions_here
from conf.schema import Placement
from store.ledger import StageEvent
from store.opened import open_store
from tasks.count import Counting
from tasks.errors import RunnerError
from tasks.model_file import ModelPart
from tasks.progress import Bar
from tasks.runtime import Runtime
from tasks.slots import Slots


class Work(Protocol):
    """Some stage calls that a worker can make by itself, so that the asker finds them."""

    @property
    def title(self) -> str:
        """What it makes, for errors and for who is told of a worker that is gone."""

    @property
    def size(self) -> int:
        """How much it is, in the units of the bar it advances."""

    @property
    def models(self) -> tuple[ModelPart, ...]:
        """The models it reads, which a worker must have under the same path."""

    def __call__(self, runtime: Runtime, bar: Bar) -> None:
        """Make the artifacts; `bar` is told how far it is, where that can be told."""


@dataclass(frozen=True)
class Site:
    """What a worker must share with the run that asks it, and how it is to compute.

    `mark` is a file that the asking process wrote into the store's folder.
    """

    root: Path
    mark: str
    device: Device
    threads: int | None
    head_budget_bytes: int
    placement: Placement
    slots: Slots | None = None
    versions: Mapping[str, str] = field(default_factory=versions_here)

    def runtime(self, progress: "WorkerProgress") -> Runtime:
        """A worker's own runtime; RunnerError where it shares too little with the asker."""
        self._refuse_foreign()
        threads = self.threads or idle_cores()
        limit_threads(threads)
        return Runtime(
            store=open_store(self.root),
            device=self.device,
            threads=threads,
            head_budget_bytes=self.head_budget_bytes,
            placement=self.placement,
            slots=self.slots,
            progress=progress,
        )

    def _refuse_foreign(self) -> None:
        if not (self.root / self.mark).is_file():
            raise RunnerError(
                f"it does not see the store of this run, {self.root}; mount the same "
                "folder there under the same path"
            )
        own = versions_here()
        other = [
            f"{name} {own[name]} instead of {wanted}"
            for name, wanted in self.versions.items()
            if own[name] != wanted
        ]
        if other:
            raise RunnerError(
                f"it has {', '.join(other)}; install the same versions on every worker"
            )
        if self.device == "cuda" and not cuda_devices():
            raise RunnerError(
                "it has no card, and this run computes on cuda; start workers where there "
                "are cards, or set runtime.device: cpu"
            )


@dataclass(frozen=True)
class Order:
    """One work for one worker; `place` is its number."""

    place: int
    work: Work
    site: Site


@dataclass(frozen=True)
class Told:
    """What a worker says meanwhile: that it began, how much is done, a line for a human."""

    place: int
    worker: str
    done: int | None = None
    text: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of an order: the stage calls, or what went wrong, told in one sentence."""

    worker: str
    events: tuple[StageEvent, ...] = ()
    error: str | None = None
    trace: str = ""


class Teller(Protocol):
    """How a worker says something to the run that asked."""

    def __call__(self, told: Told, /) -> None:
        """Send it; nobody waits for it to arrive."""


@dataclass(frozen=True)
class WorkerProgress:
    """A worker's progress: its lines are the asker's, its bars nobody's."""

    tell: Teller
    told: Told

    def say(self, text: str) -> None:
        """Have the asker say it."""
        self.tell(replace(self.told, text=text))

    def task(self, name: str, **how: Unpack[Counting]) -> AbstractContextManager[Bar]:
        """A bar inside a stage: the order's own bar tells how far it is."""
        return nullcontext(UNSEEN)


class Unseen:
    """A bar nobody looks at."""

    def advance(self, count: int = 1, **values: float) -> None:
        """Nothing to show."""

    def skip(self, count: int) -> None:
        """Nothing to show."""


UNSEEN = Unseen()
