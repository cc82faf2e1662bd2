"""Faults under a server, each done for real; afterwards the same run completes."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from flows.operations import POOL
from flows.operations_api import Api
from tests.test_e2e.site import LONG, Lab, wait_until

pytestmark = pytest.mark.faults
# The same heal as LONG begins, but one that ends: seconds, and other keys.
SHORT = "train.steps=13"
AT_WORK = "train_draft/*/work/progress.json"


def begin(lab: Lab) -> str:
    """A run in the midst of its training."""
    forget_training(lab)
    lab.deployed(*LONG, watch=False)
    lab.training()
    return str(lab.runs("heal")[0]["id"])


def state_of(lab: Lab, run: str) -> str:
    return str(
        lab.ask("flow_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})[0]["state_name"]
    )


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


def forget_training(lab: Lab) -> None:
    """So that `training` waits for the next run's."""
    for path in lab.site.store.glob(AT_WORK):
        path.unlink()


def stages(records: set[Path]) -> set[str]:
    return {path.parent.parent.name for path in records}


def completes(lab: Lab, *overrides: str) -> None:
    done = lab.deployed(*overrides)
    assert done.returncode == 0, done.stdout + done.stderr


def test_kill_9_of_the_flow_process(lab: Lab) -> None:
    run = begin(lab)
    before = lab.records()
    (pid,) = flow_processes(lab)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: state_of(lab, run) == "Crashed", "the worker says so")
    assert lab.records() == before
    shown = lab.heal("status", "--home", str(lab.site.home), "--last", "1").stdout
    assert "interrupted" in shown
    completes(lab, SHORT)
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
    completes(lab, SHORT)


def test_kill_9_of_the_server_in_mid_run(lab: Lab) -> None:
    forget_training(lab)
    lab.deployed("train.steps=60", "train.patience=null", watch=False)
    wait_until(lambda: list(lab.site.store.glob(AT_WORK)), "training")
    before = lab.records()
    os.kill(lab.pid("server"), signal.SIGKILL)
    # Not for the process to end: Prefect tries for minutes to report that it is done.
    wait_until(lambda: "report" in stages(lab.records() - before), "the report")
    made = stages(lab.records() - before)
    assert {"train_draft", "rewrite_model", "measure_draft"} <= made
    lab.up()
    kept = lab.records()
    completes(lab, "train.steps=60", "train.patience=null")
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
    completes(lab, SHORT)


def test_down_in_mid_run_and_up_again(lab: Lab) -> None:
    begin(lab)
    before = lab.records()
    lab.down()
    assert flow_processes(lab) == []
    assert lab.records() == before
    lab.up()
    completes(lab, SHORT)


def test_a_locked_database(lab: Lab) -> None:
    """Somebody holds SQLite's lock for seconds while eight codecs are written."""
    codecs = ["keep", "f16", "bf16", "f32", "q8_row", "q4_tiled", "q8_row", "f16"]
    outputs = ", ".join(
        f"{{codec: {codec}, path: out/{place}.cmf}}" for place, codec in enumerate(codecs)
    )
    stop = threading.Event()
    locked = [0]

    def lock() -> None:
        while not stop.is_set():
            base = sqlite3.connect(lab.site.home / ".prefect" / "prefect.db", timeout=30)
            base.execute("BEGIN EXCLUSIVE")
            time.sleep(2.0)
            base.rollback()
            base.close()
            locked[0] += 1
            time.sleep(1.0)

    thread = threading.Thread(target=lock)
    thread.start()
    try:
        completes(lab, SHORT, f"outputs=[{outputs}]")
    finally:
        stop.set()
        thread.join()
    assert locked[0] >= 2
    assert len(list((lab.site.home / "out").glob("*.cmf"))) == len(codecs)


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
            threading.Thread(target=lambda: completes(lab)),
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
