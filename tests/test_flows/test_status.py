"""`heal status` and `heal report`, of runs that ended in every way."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from conf.load import check
from conf.schema import RunConfig
from flows.cli import app
from flows.runs import recorded
from nets.errors import Stopped
from store.ledger import Ledger
from store.runs import open_run
from store.store import Store
from tasks.errors import InputError
from tasks.stage import Runtime
from tests.small_heal import Ground

ROOT = Path(__file__).parents[2]
KEY = "0123456789abcdef" * 2


def invoked(*line: str) -> Any:
    return CliRunner().invoke(app, list(line))


def status(store: Path) -> list[dict[str, Any]]:
    done = invoked("status", "--store", str(store), "--json")
    assert done.exit_code == 0, done.stderr
    runs: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
    return runs


def written(ground: Ground, folder: Path, **changes: Any) -> Path:
    config = folder / "small.yaml"
    config.write_text(yaml.safe_dump(ground.config(**changes)))
    return config


def end_with(ending: BaseException, ground: Ground) -> None:
    """A run that is written down and breaks off in training."""
    config = check(RunConfig, ground.config(), "small")
    runtime = Runtime(store=Store(ground.store))
    with recorded(runtime, "heal run small", config) as run:
        run.runtime.ledger.begin("train_draft", KEY, "heal")
        with run.runtime.progress.task("training", total=12, unit="steps") as bar:
            bar.advance(7, loss=0.5)
            raise ending


@pytest.mark.parametrize(
    ("ending", "state", "error"),
    [
        (KeyboardInterrupt(), "interrupted", None),
        (Stopped("after step 7", "train_draft"), "interrupted", "stopped after step 7"),
        (InputError("data: gone.jsonl: there is no such file"), "failed", "gone.jsonl"),
        (ZeroDivisionError(), "failed", "ZeroDivisionError"),
    ],
)
def test_how_a_run_ends_is_written_down(
    ground: Ground, ending: BaseException, state: str, error: str | None
) -> None:
    with pytest.raises(type(ending)):
        end_with(ending, ground)
    (told,) = status(ground.store)
    assert told["state"] == state
    assert (told["error"] is None) if error is None else error in told["error"]
    assert told["step"].startswith("train_draft heal: training: ")
    assert "student:" in told["config"]


def test_a_run_is_done_when_it_has_its_report(ground: Ground, tmp_path: Path) -> None:
    config = written(ground, tmp_path)
    line = ["run", str(config), "--store", str(ground.store), "--json"]
    told = json.loads(invoked(*line).stdout)
    (run,) = status(ground.store)
    assert (run["state"], run["report"]) == ("done", told["report"])
    assert [(e["name"], e["key"]) for e in run["events"]] == [
        (s["name"], s["key"]) for s in told["stages"]
    ]
    assert run["filling"] == []
    said = invoked("status", "--store", str(ground.store)).stdout
    assert f"{run['id']}  done, started" in said
    assert f"heal report {run['id']}" in said
    for name in ("last", run["id"], run["id"][:17], told["run"], told["run"][:8]):
        found = invoked("report", name, "--store", str(ground.store))
        assert found.stdout == f"{told['report']}\n"


def test_a_run_that_fails_says_why(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.jsonl").write_text('{"words": 1}\n')
    config = written(ground, tmp_path, data=["odd.jsonl"])
    done = invoked("run", str(config), "--store", str(ground.store))
    assert done.exit_code == 2
    (run,) = status(ground.store)
    assert run["state"] == "failed"
    assert f"error: {run['error']}" in done.stderr
    told = invoked("status", "--store", str(ground.store)).stdout
    assert "error: data: odd.jsonl: has the columns words" in told


def test_e6_a_killed_heal_is_told_with_the_step_it_was_at(
    ground: Ground, tmp_path: Path
) -> None:
    train = {"steps": 100_000, "eval_every": 1_000, "patience": None}
    config = written(ground, tmp_path, train=train)
    line = ["run", str(config), "--store", str(ground.store)]
    program = "from flows.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, *line],
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    with process:
        step = ""
        for _ in range(240):
            runs = status(ground.store)
            step = runs[0]["step"] if runs else ""
            if step.startswith("train_draft heal: training: ") and "s/step" in step:
                break
            time.sleep(0.25)
        assert "tokens/s" in step
        assert "lr " in step
        assert runs[0]["state"] == "running"
        process.send_signal(signal.SIGKILL)
        process.wait()
    (run,) = status(ground.store)
    assert run["state"] == "interrupted"
    said = " ".join(invoked("status", "--store", str(ground.store)).stdout.split())
    assert "cut off in train_draft heal: training: " in said
    assert "the same command goes on from there" in said


def test_a_pass_that_goes_on_is_told_within_its_shards_and_not_after(
    ground: Ground,
) -> None:
    runtime = Runtime(store=Store(ground.store))
    with recorded(runtime, "heal run small", check(RunConfig, ground.config(), "s")) as run:
        with run.runtime.progress.task("trunk pass", total=8, unit="windows"):
            time.sleep(0.01)
            run.runtime.ledger.begin("trunk_shard", KEY)
            assert status(ground.store)[0]["step"].startswith("trunk_shard: trunk pass: 0 ")
        time.sleep(0.01)
        run.runtime.ledger.begin("train_draft", KEY)
        assert status(ground.store)[0]["step"] == "train_draft"


def test_a_live_run_names_its_process(tmp_path: Path) -> None:
    run = open_run(tmp_path, "heal run mine.yaml", "")
    assert run is not None
    said = invoked("status", "--store", str(tmp_path)).stdout
    assert "running, started 0 s ago" in said
    assert f"what precedes its first stage (process {os.getpid()} on" in said
    run.follow(Ledger())
    run.end("done")


def test_no_runs_say_how_to_start_one(tmp_path: Path) -> None:
    done = invoked("status", "--store", str(tmp_path / "none"))
    assert done.exit_code == 0
    assert "start one with heal run or heal demo" in done.stdout
    assert not (tmp_path / "none").exists()


def test_the_page_is_written_where_it_is_wanted(finished: Ground, tmp_path: Path) -> None:
    (page,) = finished.store.glob("report/*/report.html")
    out = tmp_path / "new" / "page.html"
    name = page.parent.name[:10]
    done = invoked("report", name, "-o", str(out), "--store", str(finished.store))
    assert done.stdout == f"{out}\n"
    assert out.read_bytes() == page.read_bytes()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["report"], "no run came to a report; heal status lists"),
        (["report", "last"], "no run came to a report; heal status lists"),
        (["report", "2020"], "no run and no report begins with '2020'"),
        (["store", "ls", "nothing"], "heal store ls lists their names"),
        (["store", "rm", "abc"], "heal store ls lists their names"),
    ],
)
def test_what_is_not_there_names_the_next_step(
    tmp_path: Path, line: list[str], words: str
) -> None:
    done = invoked(*line, "--store", str(tmp_path / "none"))
    assert done.exit_code == 2
    assert words in done.stderr
    assert not (tmp_path / "none").exists()


def test_an_output_that_cannot_be_written(finished: Ground, tmp_path: Path) -> None:
    (report,) = finished.store.glob("report/*")
    line = ["report", report.name, "-o", str(tmp_path), "--store", str(finished.store)]
    done = invoked(*line)
    assert done.exit_code == 2
    assert "choose another path with -o" in done.stderr
