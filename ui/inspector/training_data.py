"""A training's log: of a finished one its table, of one under way its last checkpoint."""

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from store.manifest import WORK, Json
from store.runs import Run
from store.tables import read_table
from ui.inspector.depot import Damaged, Depot, Entry, NotHere

if TYPE_CHECKING:
    import pyarrow as pa

STAGE, LOG = "train_draft", "log.arrow"
FACTS = "ckpt-facts.json"  # the training replaces it whole, so a reader needs no lock
LARGEST_FACTS_BYTES = 64 << 20

Number = float | None
TrainingState = Literal["done", "running", "interrupted"]


@dataclass(frozen=True)
class Step:
    """One counted step; `kind` from 1, of the layouts that have kinds of inputs."""

    step: int
    loss: Number
    lr: Number
    grad_norm: Number
    kind: int | None = None


@dataclass(frozen=True)
class Evaluation:
    """Drafts held by the walk and held-out KL in nats, by chain step and kind of input.

    `interval` is of `held` at 95 %; trainings of before it was kept have none.
    """

    step: int
    held: Number
    kl: tuple[Number, ...]
    kind_kl: tuple[Number, ...] = ()
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Log:
    """What is written down so far; `chosen` is the step of the best checkpoint."""

    steps: tuple[Step, ...]
    evaluations: tuple[Evaluation, ...]
    chosen: int | None
    skipped: int

    @property
    def has_intervals(self) -> bool:
        """Whether what was evaluated has them."""
        return any(one.interval is not None for one in self.evaluations)

    @property
    def last(self) -> int:
        """The last step that was taken or evaluated."""
        ends = [one.step for one in self.steps[-1:]]
        return max([*ends, *(one.step for one in self.evaluations[-1:])], default=0)

    def at(self, step: int | None) -> Evaluation | None:
        """The evaluation after `step` steps."""
        return next((one for one in self.evaluations if one.step == step), None)

    def between(self, start: int, end: int) -> "Log":
        """The part from one step to another, both included."""
        return Log(
            tuple(one for one in self.steps if start <= one.step <= end),
            tuple(one for one in self.evaluations if start <= one.step <= end),
            self.chosen, self.skipped,
        )  # fmt: skip


EMPTY = Log((), (), None, 0)


@dataclass(frozen=True)
class Training:
    """A training in whatever state; `why` says what is amiss where the log is empty."""

    entry: Entry
    state: TrainingState
    log: Log
    why: str
    asked: int | None  # steps, if nothing ends it earlier
    settings: Json
    run: Run | None  # that is at it now
    said: Json  # its progress


class _Seen(BaseModel):
    """What a page needs of a record; more may stand there."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _Step(_Seen):
    step: int
    loss: float
    lr: float
    grad_norm: float
    kind: int | None = None


class _Evaluation(_Seen):
    step: int
    kl: tuple[float, ...]
    walk: float
    walk_interval: tuple[float, float] | None = None
    is_best: bool
    kind_kl: tuple[float, ...] = ()


class _Facts(_Seen):
    skipped: int
    steps: tuple[_Step, ...]
    evaluations: tuple[_Evaluation, ...]


class _Kept(_Seen):
    facts: _Facts


def training_of(depot: Depot, stage: str, key: str) -> Training:
    """The training that fills, or filled, an artifact. NotHere, Damaged."""
    if stage != STAGE:
        raise NotHere(f"Only a {STAGE} is a training, not a {stage}.")
    entry = depot.entry(stage, key)
    if entry.state == "damaged":
        raise Damaged(entry.problem)
    if entry.manifest is None:
        return _unfinished(depot, entry)
    numbers, settings = entry.manifest.numbers, entry.manifest.settings
    log = _finished(entry.path / LOG, _whole(numbers.get("best_step")),
                    _whole(numbers.get("skipped")) or 0)  # fmt: skip
    return Training(
        entry, "done", log, "", _whole(settings.get("steps")), settings, None, {}
    )


def _unfinished(depot: Depot, entry: Entry) -> Training:
    run = next((one for one in depot.runs() if _fills(one, entry.key)), None)
    said = (run.progress if run else depot.progress(STAGE, entry.key)) or {}
    log, why = EMPTY, "No checkpoint is written yet, so there is no curve."
    facts = entry.path / WORK / FACTS
    try:
        status = facts.stat()
        log, why = _checkpoint(facts, status.st_mtime_ns, status.st_size), ""
    except FileNotFoundError:
        pass
    except Damaged as error:
        why = str(error)
    except OSError as error:
        why = f"{facts}: cannot be read ({error.strerror})."
    state: TrainingState = "interrupted" if run is None else "running"
    return Training(entry, state, log, why, _whole(said.get("total")), {}, run, said)


def _fills(run: Run, key: str) -> bool:
    return run.state == "running" and any(
        one.name == STAGE and one.key == key for one in run.record.filling
    )


@lru_cache(maxsize=4)
def _checkpoint(path: Path, changed_ns: int, size: int) -> Log:
    """Parsed once a change: a live page asks every two seconds. Damaged."""
    if size > LARGEST_FACTS_BYTES:
        raise Damaged(
            f"{path}: the checkpoint's log has {size:,} bytes, too many to follow live; "
            "the whole log is shown when the training ends."
        )
    with path.open("rb") as file:
        text = file.read(LARGEST_FACTS_BYTES)
    try:
        facts = _Kept.model_validate_json(text).facts
    except ValidationError as error:
        raise Damaged(
            f"{path}: the checkpoint's log cannot be read; a run that resumes from it "
            "says so and starts the training over."
        ) from error
    best = [one.step for one in facts.evaluations if one.is_best]
    return Log(
        tuple(
            Step(s.step, _finite(s.loss), _finite(s.lr), _finite(s.grad_norm),
                 None if s.kind is None else s.kind + 1)
            for s in facts.steps
        ),
        tuple(
            Evaluation(e.step, _finite(e.walk), _finites(e.kl), _finites(e.kind_kl),
                       _interval(*(e.walk_interval or (None, None))))
            for e in facts.evaluations
        ),
        best[-1] if best else None, facts.skipped,
    )  # fmt: skip


def _finished(path: Path, chosen: int | None, skipped: int) -> Log:
    rows = _rows(read_table(path), path)
    steps = [row for row in rows if row["loss"] is not None or row["lr"] is not None]
    seen = [row for row in rows if row["held"] is not None or row["kl"] is not None]
    kl = _numbered(rows, "kl_") or ["kl"]
    kinds = _numbered(rows, "kind_kl_")
    return Log(
        tuple(
            Step(int(row["step"] or 0), row["loss"], row["lr"], row["grad_norm"],
                 _whole(row.get("kind")))
            for row in steps
        ),
        tuple(
            Evaluation(int(row["step"] or 0), row["held"], tuple(row[n] for n in kl),
                       tuple(row[n] for n in kinds),
                       _interval(row.get("held_low"), row.get("held_high")))
            for row in seen
        ),
        chosen, skipped,
    )  # fmt: skip


def _rows(table: "pa.Table", path: Path) -> list[dict[str, Number]]:
    """Every row by column, numbers finite or None. Damaged if it is no training's log."""
    missing = {"step", "loss", "lr", "grad_norm", "kl", "held"} - set(table.column_names)
    if missing:
        raise Damaged(f"{path}: the log has no column {', '.join(sorted(missing))}.")
    columns = {}
    for name in table.column_names:
        values = table.column(name).to_pylist()
        if any(v is not None and not isinstance(v, int | float) for v in values):
            raise Damaged(f"{path}: the column {name!r} holds what is no number.")
        columns[name] = _finites(values)
    return [dict(zip(columns, row, strict=True))
            for row in zip(*columns.values(), strict=True)]  # fmt: skip


def _numbered(rows: list[dict[str, Number]], start: str) -> list[str]:
    """Columns `start` + 1, 2, … in order."""
    names = rows[0] if rows else {}
    found: list[str] = []
    while f"{start}{len(found) + 1}" in names:
        found.append(f"{start}{len(found) + 1}")
    return found


def _interval(low: Number, high: Number) -> tuple[float, float] | None:
    if low is None or high is None or not low <= high:
        return None
    return (low, high)


def _finite(value: float) -> Number:
    return value if math.isfinite(value) else None


def _finites(values: "list[float | None] | tuple[float, ...]") -> tuple[Number, ...]:
    return tuple(None if value is None else _finite(value) for value in values)


def _whole(value: object) -> int | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and isinstance(value, int | float) else None
