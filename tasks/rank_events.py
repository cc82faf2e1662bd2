"""What a rank tells the process that started it: one JSON object a line."""

import json
from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict

from cmfio.errors import CmfError
from nets.errors import ModelError, Stopped
from nets.fit_state import EvalRecord, StepRecord
from nets.training import FitResult
from store.errors import ArtifactError
from tasks.training_run import Listener


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Result(_Frozen):
    """A `FitResult`."""

    steps: tuple[StepRecord, ...]
    evaluations: tuple[EvalRecord, ...]
    skipped: int

    def fit_result(self) -> FitResult:
        """As `fit` gave it."""
        return FitResult(self.steps, self.evaluations, self.skipped)


class Failure(_Frozen):
    """An error that says what to do, without its class: what is told must not run."""

    kind: Literal["model", "store", "file", "system"]
    text: str
    number: int = 0

    def error(self, rank: int) -> Exception:
        """The same to raise here."""
        if self.kind == "system":
            return OSError(self.number, f"rank {rank}: {self.text}")
        kinds = {"model": ModelError, "store": ArtifactError, "file": CmfError}
        return kinds[self.kind](self.text)


class Event(_Frozen):
    """One thing a rank tells; all but one are None."""

    say: str | None = None
    resumed: int | None = None
    step: StepRecord | None = None
    evaluation: EvalRecord | None = None
    result: Result | None = None
    stopped: str | None = None
    failed: Failure | None = None

    def line(self) -> bytes:
        """As it is sent; not finite numbers stay what they are."""
        told = self.model_dump(mode="json", exclude_none=True)
        return json.dumps(told).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> "Event":
        """What `line` made."""
        return cls.model_validate(json.loads(line))

    def tell(self, listener: Listener) -> None:
        """Pass on what is for those who watch."""
        if self.say is not None:
            listener.say(self.say)
        if self.resumed is not None:
            listener.resumed(self.resumed)
        if self.step is not None:
            listener.step(self.step)
        if self.evaluation is not None:
            listener.evaluation(self.evaluation)


class EventListener:
    """Rank 0's listener: sends everything on."""

    def __init__(self, send: Callable[[Event], None]) -> None:
        self.send = send

    def say(self, text: str) -> None:
        """Send it."""
        self.send(Event(say=text))

    def resumed(self, steps: int) -> None:
        """Send it."""
        self.send(Event(resumed=steps))

    def step(self, record: StepRecord) -> None:
        """Send it."""
        self.send(Event(step=record))

    def evaluation(self, record: EvalRecord) -> None:
        """Send it."""
        self.send(Event(evaluation=record))


def event_of(error: Exception) -> Event | None:
    """What is told of an error; None for a defect, of which the log has the trace."""
    if isinstance(error, Stopped):
        return Event(stopped=error.where)
    if isinstance(error, OSError):
        text = f"{error.strerror or error}: {error.filename}"
        return Event(failed=Failure(kind="system", text=text, number=error.errno or 0))
    for kind, known in (
        ("model", ModelError),
        ("store", ArtifactError),
        ("file", CmfError),
    ):
        if isinstance(error, known):
            return Event(failed=Failure.model_validate({"kind": kind, "text": str(error)}))
    return None
