"""Deployments on real services: a server, a worker, a pool, everything by command line."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.test_e2e.site import INSPECTOR, LONG, Lab, wait_until

pytestmark = pytest.mark.e2e
DOCS = Path(__file__).parents[2] / "docs" / "operations.md"


def test_a_deployment_runs_to_completed_and_then_finds_everything(lab: Lab) -> None:
    first = lab.deployed()
    assert first.returncode == 0, first.stdout + first.stderr
    assert "Completed" in first.stdout
    (run,) = lab.runs("heal")
    assert re.fullmatch(r"heal a · tail_kl · [0-9a-f]{4}", run["name"])
    wait_until(lambda: len(lab.states(run["id"])) >= 8, "all tasks told")
    assert set(lab.states(run["id"]).values()) == {"Completed"}
    made = lab.records()

    again = lab.scheduled()
    assert lab.ended(again) == "Completed"
    assert lab.records() == made
    wait_until(lambda: len(lab.states(again)) >= 8, "all tasks told")
    states = lab.states(again)
    assert set(states.values()) == {"Cached"}
    named = {"pack_windows", "rewrite_model keep", "measure_draft healed keep"}
    assert named <= states.keys()
    shown = lab.artifacts(again)
    assert {"hold-rates", "codecs", "heal-summary"} <= shown.keys()
    assert "data:image/svg+xml;base64," in shown["heal-summary"]
    assert re.search(rf"{INSPECTOR}/heal/[0-9a-f]{{8,}}", shown["inspector"])


def told_services(lab: Lab) -> dict[str, Any]:
    done = lab.heal("status", "--home", str(lab.site.home), "--json")
    services: dict[str, Any] = json.loads(done.stdout)["services"]
    return services


def test_up_again_changes_nothing_and_status_shows_all(lab: Lab) -> None:
    before = lab.pid("server"), lab.pid("worker")
    lab.up()
    assert (lab.pid("server"), lab.pid("worker")) == before
    services = told_services(lab)
    assert (services["server"], services["worker"]) == ("running", "running")
    assert services["deployments"] == ["heal/small", "heal/wide", "reheal/nightly"]
    wait_until(lambda: len(told_services(lab)["scheduled"]) == 1, "a night is planned")


def test_the_event_as_curl_sends_it_starts_a_reheal(lab: Lab) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (line,) = re.findall(r"^curl .*?[^\\]$", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    line = line.replace("http://127.0.0.1:4200", lab.site.url)
    subprocess.run(
        ["sh", "-c", line], check=True, env=os.environ | {"MODEL": "models/a.cmf"}
    )
    wait_until(lambda: lab.runs("reheal"), "the run of the event")
    wait_until(lambda: lab.runs("reheal")[0]["state_name"] == "Completed", "its end")
    (run,) = lab.runs("reheal")
    assert run["name"] == "reheal night.yaml · models/a.cmf was announced"
    assert (lab.models / "a.healed.cmf").exists()
    (told,) = json.loads(lab.artifacts(run["id"])["reheal"])
    assert told["state"] == "healed"
    assert told["after"] > told["before"]


def test_notify_starts_one_that_finds_nothing_due(lab: Lab) -> None:
    known = len(lab.runs("reheal"))
    assert lab.heal("notify", "models/a.cmf").returncode == 0
    wait_until(lambda: len(lab.runs("reheal")) > known, "the run of the event")
    wait_until(lambda: lab.runs("reheal")[0]["state_name"] == "Completed", "its end")
    run = lab.runs("reheal")[0]
    assert run["total_run_time"] < 5
    (told,) = json.loads(lab.artifacts(run["id"])["reheal"])
    assert told["state"] == "up to date"


def test_a_configuration_that_cannot_run_ends_with_1(lab: Lab) -> None:
    done = lab.deployed("student=models/none.cmf")
    assert done.returncode == 1, done.stdout


def test_a_cancelled_run_leaves_no_artifact_and_no_process(lab: Lab) -> None:
    run = lab.scheduled(*LONG)
    lab.training()
    wait_until(lambda: "progress" in lab.artifacts(run), "a bar for what takes long")
    assert 0 <= float(lab.artifacts(run)["progress"]) < 100
    before = lab.records()
    assert lab.run("prefect", "flow-run", "cancel", run).returncode == 0
    # For a moment Crashed, as the process reports its end; the worker has the last word.
    wait_until(lambda: lab.state_of(run) == "Cancelled", "cancelled")
    assert lab.records() == before
