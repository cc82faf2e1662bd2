"""`heal status`: runs, newest first; how far, where cut, why failed."""

import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.command import WIDTH
from store.runs import Run
from tasks.count import duration

INDENT = " " * 4


def status_json(root: Path, runs: Sequence[Run]) -> dict[str, Any]:
    """`{"store", "runs": [{"id", "state", "command", "step", "error", "report", …}]}`."""
    return {"store": str(root), "runs": [_json(root, run) for run in runs]}


def _json(root: Path, run: Run) -> dict[str, Any]:
    page = report_page(root, run)
    return {
        **run.record.model_dump(mode="json"),
        "state": run.state,
        "step": last_step(run),
        "progress": run.progress,
        "report": None if page is None else str(page),
    }


def report_page(root: Path, run: Run) -> Path | None:
    """Where a run's page lies; None if it came to none or that was deleted since."""
    if run.record.report is None:
        return None
    page = root / run.record.report / "report.html"
    return page if page.exists() else None


def status_text(root: Path, runs: Sequence[Run]) -> str:
    """A line a run, and below it what there is to say of it."""
    if not runs:
        return f"no run is written down in {root}; start one with heal run or heal demo"
    return "\n".join(line for run in runs for line in _lines(root, run))


def _lines(root: Path, run: Run) -> Iterator[str]:
    record = run.record
    ago = duration(_seconds(record.started))
    yield f"{record.id}  {run.state}, started {ago} ago"
    yield from _wrapped(record.command)
    yield from _wrapped(_about(root, run))


def _about(root: Path, run: Run) -> str:
    record = run.record
    if run.state == "running":
        return f"{last_step(run)} (process {record.pid} on {record.host})"
    if run.state == "interrupted":
        on = "the same command goes on from there"
        return record.error or f"cut off in {last_step(run)}; {on}"
    if run.state == "failed":
        return f"error: {record.error}"
    took = duration(_seconds(record.started) - _seconds(record.ended or record.started))
    cached = sum(event.state == "cached" for event in record.events)
    page = report_page(root, run)
    said = f"took {took}; {len(record.events)} stages, {cached} of them cached"
    if page is not None:
        return f"{said}; heal report {record.id}"
    return said if record.report is None else f"{said}; its report was deleted since"


def last_step(run: Run) -> str:
    """What the run was last known to do: its progress, the stage, or the stage before."""
    filling, events = run.record.filling, run.record.events
    progress = run.progress
    since = filling[-1].since if filling else 0.0
    stage = f"{filling[-1].name} {filling[-1].label}".rstrip() if filling else ""
    if progress is not None:
        goes_on = not progress.get("over", True)  # a pass is older than the shard it is at
        if goes_on or progress.get("at", 0.0) >= since:
            return f"{stage}: {progress['line']}" if stage else str(progress["line"])
    if stage:
        return stage
    if events:
        return f"what follows {events[-1].name} {events[-1].label}".rstrip()
    return "what precedes its first stage"


def _seconds(iso: str) -> float:
    """How long ago a time was."""
    return max((datetime.now(UTC) - datetime.fromisoformat(iso)).total_seconds(), 0.0)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
