"""The book of runs, `<store>/runs/<id>/run.json`: what each did, does, or was doing.

Whoever writes a run down holds a lock that dies with its process. So a run that says
`running` and whose lock is free was cut off, wherever its process id went.
"""

import fcntl
import json
import os
import platform
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from store.atomic import replace_whole
from store.lease_folder import marked_times
from store.ledger import Filling, Ledger, StageEvent
from store.manifest import Json, PartName, Stored

RUNS, RUN, PROGRESS, LOCK = "runs", "run.json", "progress.json", "lock"
BELIEVED_S = 86_400.0
EVENTS_EVERY_S = 1.0  # a run that finds everything must not spend its time on telling so

RunState = Literal["running", "done", "failed", "interrupted"]


class RunRecord(Stored):
    """The whole `run.json`. `report` is the artifact's name; times are ISO, in UTC."""

    id: str
    pid: int
    host: str
    command: str
    config: str
    started: str
    ended: str | None = None
    state: RunState = "running"
    error: str | None = None
    events: tuple[StageEvent, ...] = ()
    filling: tuple[Filling, ...] = ()
    report: PartName | None = None


@dataclass(frozen=True)
class Run:
    """A run as a reader sees it now.

    `progress` is what it last said of its work, if it got to say anything.
    """

    record: RunRecord
    state: RunState
    progress: Json | None


class OpenRun:
    """A run that this process is writing down until it ends."""

    def __init__(self, folder: Path, record: RunRecord, lock: int) -> None:
        self.folder, self.record = folder, record
        self._lock = lock
        self._told = 0.0
        self._write()

    @property
    def progress_path(self) -> Path:
        """Where to keep how far the run is."""
        return self.folder / PROGRESS

    def follow(self, ledger: Ledger) -> None:
        """Write down the stage calls so far; finds that follow each other wait a moment."""
        events, filling = tuple(ledger.events), tuple(ledger.filling)
        has_news = filling != self.record.filling
        self.record = self.record.model_copy(update={"events": events, "filling": filling})
        if has_news or time.monotonic() - self._told >= EVENTS_EVERY_S:
            self._write()

    def end(
        self,
        state: Literal["done", "failed", "interrupted"],
        *,
        error: str | None = None,
        report: str | None = None,
    ) -> None:
        """Write how it ended and let go of the lock."""
        self.record = self.record.model_copy(
            update={"state": state, "error": error, "report": report, "ended": _now()}
        )
        self._write()
        os.close(self._lock)

    def _write(self) -> None:
        self._told = time.monotonic()
        try:
            replace_whole(self.folder / RUN, self.record.model_dump_json(indent=1).encode())
        except OSError:
            return  # a full disk must not stop a run that itself may need no more room


def open_run(root: Path, command: str, config: str) -> OpenRun | None:
    """A new run in the book of the store at `root`; None if it cannot be written."""
    now = datetime.now().astimezone()
    name = f"{now:%Y-%m-%d-%H%M%S}-{secrets.token_hex(2)}"
    folder = root / RUNS / name
    try:
        folder.mkdir(parents=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return None
    record = RunRecord(
        id=name,
        pid=os.getpid(),
        host=platform.node(),
        command=command,
        config=config,
        started=_now(),
    )
    return OpenRun(folder, record, lock)


def runs(root: Path) -> list[Run]:
    """Every run in the book of the store at `root` that can be read, newest first."""
    found = [_read(path) for path in root.glob(f"{RUNS}/*/{RUN}")]
    known = [run for run in found if run is not None]
    return sorted(known, key=lambda run: (run.record.started, run.record.id), reverse=True)


def _read(path: Path) -> Run | None:
    try:
        # Looked at first: a run that ends in between has then said how it ended.
        is_alive = _is_locked(path.with_name(LOCK))
        record = RunRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    was_cut = record.state == "running" and not is_alive and not _is_afar(path, record)
    state: RunState = "interrupted" if was_cut else record.state
    return Run(record, state, read_progress(path.with_name(PROGRESS)))


def _is_afar(path: Path, record: RunRecord) -> bool:
    """Whether it runs on another machine, whose lock may not show here, as far as we know.

    Only in a store that several machines share; believed for a day after its last word.
    """
    if record.host == platform.node() or marked_times(path.parents[2] / "locks") is None:
        return False
    said = max(one.stat().st_mtime for one in path.parent.iterdir())
    return time.time() - said < BELIEVED_S


def read_progress(path: Path) -> Json | None:
    """What work last said of itself in a PROGRESS file; None if nothing can be read."""
    try:
        said = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) else None


def _is_locked(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
