"""The book of runs, with real processes that end in every way."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from store.ledger import Ledger, StageEvent
from store.runs import OpenRun, open_run, runs

ROOT = Path(__file__).parents[2]
KEY = "0123456789abcdef" * 2
PROGRAM = """\
import json, sys, time
from pathlib import Path
from store.ledger import Ledger
from store.runs import open_run
run = open_run(Path(sys.argv[1]), "heal run mine.yaml", "student: a.cmf")
ledger = Ledger(on_change=run.follow)
ledger.begin("train_draft", "0123456789abcdef" * 2, "heal")
run.progress_path.write_text(json.dumps({"line": "training: 7 of 12 steps", "at": 9e9}))
print("ready", flush=True)
time.sleep(60)
"""


def opened(root: Path) -> OpenRun:
    run = open_run(root, "heal run mine.yaml", "student: a.cmf\n")
    assert run is not None
    return run


def event(state: Literal["cached", "ran", "resumed"] = "ran", key: str = KEY) -> StageEvent:
    return StageEvent("train_draft", key, state, 1.5, "heal")


def test_a_live_run_and_how_it_ends(tmp_path: Path) -> None:
    run = opened(tmp_path)
    ledger = Ledger(on_change=run.follow)
    ledger.begin("train_draft", KEY, "heal")
    (seen,) = runs(tmp_path)
    assert seen.state == "running"
    assert [one.name for one in seen.record.filling] == ["train_draft"]
    ledger.add(event())
    run.end("done", report=f"report/{KEY}")
    (seen,) = runs(tmp_path)
    assert (seen.state, seen.record.report) == ("done", f"report/{KEY}")
    assert seen.record.events == (event(),)
    assert seen.record.filling == ()
    assert seen.record.config == "student: a.cmf\n"


def test_a_killed_run_is_interrupted_where_it_last_was(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (seen,) = runs(tmp_path)
        assert (seen.state, seen.record.pid) == ("running", process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
    (seen,) = runs(tmp_path)
    assert seen.state == "interrupted"
    assert seen.record.state == "running"  # it had no time to say more
    assert seen.progress is not None
    assert seen.progress["line"] == "training: 7 of 12 steps"


def test_finds_in_a_row_are_not_written_one_by_one(tmp_path: Path) -> None:
    run = opened(tmp_path)
    ledger = Ledger(on_change=run.follow)
    before = (run.folder / "run.json").stat().st_ino
    for number in range(100):
        ledger.add(event("cached", f"{number:032x}"))
    assert (run.folder / "run.json").stat().st_ino == before
    run.end("done")
    (seen,) = runs(tmp_path)
    assert len(seen.record.events) == 100


def test_the_newest_comes_first_and_the_unreadable_is_left_out(tmp_path: Path) -> None:
    for state in ("failed", "interrupted"):
        run = opened(tmp_path)
        run.record = run.record.model_copy(update={"started": f"2031-01-0{len(state)}"})
        run.end("failed" if state == "failed" else "interrupted", error="why")
    opened(tmp_path).end("done")
    (tmp_path / "runs" / "odd").mkdir()
    (tmp_path / "runs" / "odd" / "run.json").write_text('{"id": 3}')
    # 2031-01-011, 2031-01-06 and today.
    assert [run.state for run in runs(tmp_path)] == ["failed", "interrupted", "done"]


def test_a_store_that_cannot_be_written_has_no_book(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert open_run(tmp_path / "file", "heal run x", "") is None
    assert runs(tmp_path / "file") == []


def test_a_full_disk_does_not_stop_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    run = opened(tmp_path)
    monkeypatch.setattr("store.runs.replace_whole", full)
    run.follow(Ledger(events=[event()]))
    run.end("failed", error="no space")
    told = json.loads((run.folder / "run.json").read_bytes())
    assert told["state"] == "running"
    (seen,) = runs(tmp_path)
    assert seen.state == "interrupted"
