"""The workflow engine: section E of the cases that other projects met."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from conf.training import TrainSettings
from flows.plan import plan_run
from store.artifact import Artifact
from tasks.stage import Runtime, StageResult
from tasks.train import train_draft as was
from tests.small_heal import Ground, heal
from tests.test_flows.test_cache import AFTER_TRAINING

ROOT = Path(__file__).parents[2]


def test_e2_a_changed_constant_reruns_training_and_says_why(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys hold a stage's version, which whoever changes what it writes must raise."""

    def fill(
        out: Path, settings: TrainSettings, runtime: Runtime, **inputs: Artifact
    ) -> Mapping[str, object] | StageResult | None:
        changed = settings.model_copy(update={"lr": 2 * settings.lr})
        return was.fill(out, changed, runtime, **inputs)

    now = replace(was, version=was.version + 1, fill=fill)
    monkeypatch.setattr("flows.ground.train_draft", now)
    config = ground.store.parent / "run.yaml"
    config.write_text(yaml.safe_dump(ground.config()))
    (planned,) = [
        stage
        for stage in plan_run(str(config), [], ground.store).missing
        if stage.name == "train_draft"
    ]
    assert f"the stage is version {now.version}, was {was.version}" in planned.why
    run = heal(ground.config(), ground.store)
    assert run.made == ["train_draft heal", *AFTER_TRAINING]


def test_e3_another_process_and_hash_seed_find_everything(
    finished: Ground, tmp_path: Path
) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(finished.config()))
    program = "from flows.cli import main; main()"
    line = ["plan", str(config), "--store", str(finished.store), "--json"]
    told = []
    for seed in ("1", "4294967295"):
        done = subprocess.run(
            [sys.executable, "-c", program, *line],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(json.loads(done.stdout))
    for one in told:
        states = {stage["name"]: stage["state"] for stage in one["stages"]}
        assert {"pack_windows", "trunk_shard", "train_draft"} <= states.keys()
        # A report shows the time and the command, and so is one of its own.
        assert {name for name, state in states.items() if state == "runs"} <= {"report"}
    assert told[0]["stages"] == told[1]["stages"]


@pytest.mark.parametrize(
    ("stage", "made"),
    [
        ("pack_windows", ["pack_windows"]),
        ("trunk_shard", ["trunk_shard"] * 7),
        ("train_draft", ["train_draft heal"]),
        ("rewrite_model", ["rewrite_model keep"]),
    ],
)
def test_e4_a_result_that_is_gone_is_made_again(
    ground: Ground, stage: str, made: list[str]
) -> None:
    shutil.rmtree(ground.store / stage)
    run = heal(ground.config(), ground.store)
    # What read it is found: it came back with the same bytes. The report tells seconds.
    assert [name for name in run.made if name != "report"] == made


STAGE = """
import sys
from pathlib import Path
from conf.schema import RuntimeConfig
from flows.runtime import open_runtime
from tasks.progress import SilentProgress
from tests.test_tasks.sample_stages import Text, write_text
runtime = open_runtime(RuntimeConfig(threads=1), Path(sys.argv[1]), SilentProgress())
write_text(Text(), runtime)
"""


@pytest.mark.parametrize("home", ["home", "/proc/no/home"])
def test_e8_nothing_is_written_into_the_home_folder(tmp_path: Path, home: str) -> None:
    """A stage as `heal run` makes it, with a home that is empty, and one that can't be."""
    place = tmp_path / home
    if home == "home":
        place.mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, "-c", STAGE, str(tmp_path / "store")],
        env={**environment, "PYTHONPATH": str(ROOT), "HOME": str(place)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in tmp_path.iterdir()} <= {"home", "store"}
    assert not place.exists() or list(place.iterdir()) == []
    assert list((tmp_path / "store").glob("write_text/*/record.json"))
