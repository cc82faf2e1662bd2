"""Faults under a server, each done for real; afterwards the same run completes."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows.operations import POOL
from flows.operations_api import Api
from tests.test_e2e.site import LONG, Lab, wait_until

pytestmark = pytest.mark.faults
# The same heal as LONG begins, but one that ends: seconds, and other keys.
SHORT = "train.steps=13"
CODECS = ("f32", "f16", "bf16", "q8_row", "q8_2f", "q4_block", "q4_tiled", "vbit")
SOME = ("train.steps=60", "train.patience=null")


def begin(lab: Lab) -> str:
    """A run in the midst of a training that doesn't end."""
    run = lab.begin(*LONG)
    lab.training()
    return run


def flow_processes(lab: Lab) -> list[int]:
    """The processes a worker started for flow runs."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().split(b"\0")
            where = (entry / "cwd").readlink()
        except OSError:
            continue
        if b"prefect.engine" in line and where.is_relative_to(lab.site.home):
            found.append(int(entry.name))
    return found


def stages(records: set[Path]) -> set[str]:
    return {path.parent.parent.name for path in records}


def test_kill_9_of_the_flow_process(lab: Lab) -> None:
    run = begin(lab)
    before = lab.records()
    (pid,) = flow_processes(lab)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: lab.state_of(run) == "Crashed", "the worker says so")
    assert lab.records() == before
    shown = lab.heal("status", "--home", str(lab.site.home), "--last", "1").stdout
    assert "interrupted" in shown
    lab.completes(SHORT)
    assert before < lab.records()


def test_kill_9_of_the_worker(lab: Lab) -> None:
    begin(lab)
    before = lab.records()
    os.kill(lab.pid("worker"), signal.SIGKILL)
    shown = lab.heal("status", "--home", str(lab.site.home)).stdout
    assert "worker  stopped" in shown
    wait_until(lambda: not flow_processes(lab), "its run ends with it")
    assert lab.records() == before
    lab.up()
    lab.completes(SHORT)


def test_kill_9_of_the_server_in_mid_run(lab: Lab) -> None:
    lab.begin(*SOME)
    before = lab.records()
    os.kill(lab.pid("server"), signal.SIGKILL)
    # Not for the process to end: Prefect tries for minutes to report that it is done.
    wait_until(lambda: "report" in stages(lab.records() - before), "the report")
    made = stages(lab.records() - before)
    assert {"train_draft", "rewrite_model", "measure_draft"} <= made
    lab.up()
    kept = lab.records()
    lab.completes(*SOME)
    assert lab.records() == kept


def test_a_server_that_is_away_at_the_start(lab: Lab) -> None:
    lab.down()
    done = lab.deployed(SHORT)
    assert done.returncode == 1
    healed = lab.heal("run", "small.yaml", "--set", SHORT)
    assert healed.returncode == 0, healed.stderr
    refused = lab.heal("notify", "models/a.cmf")
    assert refused.returncode == 2
    assert "no server took the event" in refused.stderr
    lab.up()
    lab.completes(SHORT)


def test_down_in_mid_run_and_up_again(lab: Lab) -> None:
    begin(lab)
    before = lab.records()
    lab.down()
    assert flow_processes(lab) == []
    assert lab.records() == before
    lab.up()
    lab.completes(SHORT)


@contextmanager
def locked(database: Path) -> Iterator[list[float]]:
    """Somebody holds SQLite's lock for 2 s in every 3; when, for each time."""
    stop = threading.Event()
    times: list[float] = []

    def lock() -> None:
        while not stop.is_set():
            base = sqlite3.connect(database, timeout=30)
            base.execute("BEGIN EXCLUSIVE")
            times.append(time.monotonic())
            time.sleep(2.0)
            base.rollback()
            base.close()
            stop.wait(1.0)

    thread = threading.Thread(target=lock)
    thread.start()
    try:
        yield times
    finally:
        stop.set()
        thread.join()


def codec_run(lab: Lab, codec: str) -> str:
    outputs = f"outputs=[{{codec: {codec}, path: out/{codec}.cmf}}]"
    return lab.scheduled(SHORT, outputs, deployment="heal/wide")


def test_e7_a_locked_database_under_eight_codecs_at_once(lab: Lab) -> None:
    """Eight runs of one heal at once, a codec each; they share all stages but the last.

    A run that the worker could not place is told as Crashed, and done by asking again.
    """
    lab.completes(SHORT)
    before = lab.records()
    most = 0
    with locked(lab.site.home / ".prefect" / "prefect.db") as times:
        runs = {codec: codec_run(lab, codec) for codec in CODECS}
        deadline = time.monotonic() + 400
        states: dict[str, str] = {}
        while not states or set(states.values()) - {"Completed", "Crashed"}:
            assert time.monotonic() < deadline, states
            most = max(most, len(flow_processes(lab)))
            states = {codec: lab.state_of(run) for codec, run in runs.items()}
    lost = [codec for codec, state in states.items() if state == "Crashed"]
    for codec in lost:
        assert lab.ended(codec_run(lab, codec)) == "Completed"
    assert len(times) >= 2
    assert most >= 4
    assert before < lab.records()
    written = {path.stem for path in (lab.site.home / "out").glob("*.cmf")}
    assert written == set(CODECS)


def online(lab: Lab) -> int:
    return Api(lab.site.url).online_workers(POOL)


def test_two_workers_share_one_store(lab: Lab) -> None:
    ended: list[int] = []
    with (lab.site.books / "second.log").open("wb") as log:
        second = subprocess.Popen(
            [str(Path(sys.executable).parent / "prefect"), "worker", "start",
             "--pool", POOL, "--name", "second"],
            cwd=lab.site.home, env=lab.site.environment(), stdout=log, stderr=log,
        )  # fmt: skip
    try:
        wait_until(lambda: online(lab) == 2, "both workers report")
        watched = ("prefect", "deployment", "run", "reheal/nightly", "--watch")
        both = [
            threading.Thread(target=lab.completes),
            threading.Thread(target=lambda: ended.append(lab.run(*watched).returncode)),
        ]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        assert ended == [0]
        assert (lab.models / "a.healed.cmf").exists()
        (run,) = (one for one in lab.runs("heal") if one["parameters"]["overrides"] == [])
        assert run["state_name"] == "Completed"
    finally:
        second.terminate()
        second.wait()
