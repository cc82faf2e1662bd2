"""The workflow engine: section E of the cases that other projects met."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from conf.training import TrainSettings
from flows.plan import plan_run
from store.artifact import Artifact
from store.errors import ArtifactError
from store.store import Store
from tasks.stage import Runtime, StageResult
from tasks.train import train_draft as was
from tests.small_heal import Ground, heal
from tests.test_flows.test_cache import AFTER_TRAINING
from tests.test_tasks.sample_stages import RAN, DataFile, Text, write_text

ROOT = Path(__file__).parents[2]


def run_alone(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """`heal` in a process of its own, as from a shell that has set nothing of Prefect's."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    return subprocess.run(
        [sys.executable, "-c", "from flows.cli import main; main()", *arguments],
        env={**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


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


def test_e3_another_process_and_hash_seed_find_everything(ground: Ground) -> None:
    folder = ground.store.parent
    (folder / "run.yaml").write_text(yaml.safe_dump(ground.config()))
    told = []
    for seed in ("1", "4294967295"):
        line = ["run", "run.yaml", "--store", str(ground.store), "--json"]
        done = run_alone(line, folder, {"PYTHONHASHSEED": seed})
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout)["stages"])
    for stages in told:
        states = {stage["name"]: stage["state"] for stage in stages}
        assert {"pack_windows", "trunk_shard", "train_draft"} <= states.keys()
        # A report shows the command, and so the first of these is one of its own.
        assert {name for name, state in states.items() if state != "cached"} <= {"report"}
    assert [one["key"] for one in told[0]] == [one["key"] for one in told[1]]
    assert {stage["state"] for stage in told[1]} == {"cached"}


@pytest.mark.parametrize(
    "odd",
    [object(), len, Path(), {"a": 1}, [DataFile("0" * 64), object()]],
    ids=lambda odd: str(type(odd)),
)
def test_e1_an_input_that_cannot_be_hashed_makes_no_key(tmp_path: Path, odd: Any) -> None:
    """What the rest of the key would find is there, and is not taken."""
    runtime = Runtime(store=Store(tmp_path))
    write_text(Text(), runtime)
    write_text(Text(), runtime, data=DataFile("0" * 64))
    RAN.clear()
    with pytest.raises(ArtifactError, match=r"input data(\[1\]|\.a)? is a"):
        write_text(Text(), runtime, data=odd)
    assert RAN == []
    assert len(runtime.ledger.events) == 2
    assert len(list(runtime.store.artifacts())) == 2


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


EIGHT = ("f32", "f16", "bf16", "q8_row", "q8_2f", "q4_block", "q4_tiled", "vbit")


def test_e7_eight_codecs_in_one_run(ground: Ground, tmp_path: Path) -> None:
    """As a user runs it, with no server: no database is there to be locked."""
    work = tmp_path / "work"
    work.mkdir()
    outputs = [{"codec": c, "path": str(work / f"{c}.cmf")} for c in EIGHT]
    (work / "run.yaml").write_text(yaml.safe_dump(ground.config(outputs=outputs)))
    line = ["run", "run.yaml", "--store", str(ground.store), "--json"]
    done = run_alone(line, work, {})
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "locked" not in done.stderr
    report = Path(json.loads(done.stdout)["report"])
    told = json.loads((report.with_suffix(".json")).read_text())
    assert [row["codec"] for row in told["codecs"]] == list(EIGHT)
    assert {path.stem for path in work.glob("*.cmf")} == set(EIGHT)
    assert list(ground.store.rglob("*.db")) == []


@pytest.mark.parametrize("home", ["home", "/proc/no/home"])
def test_e8_nothing_is_written_into_the_home_folder(
    finished: Ground, tmp_path: Path, home: str
) -> None:
    """A whole heal with a home that is empty; one that finds most, with none at all."""
    place, work, spare = tmp_path / home, tmp_path / "work", tmp_path / "spare"
    for folder in (work, spare, *([place] if home == "home" else [])):
        folder.mkdir()
    if home != "home":
        shutil.copytree(finished.store, work / ".heal")
    outputs = [{"codec": "q8_row", "path": "out.cmf"}]
    (work / "run.yaml").write_text(yaml.safe_dump(finished.config(outputs=outputs)))
    environment = {"HOME": str(place), "TMPDIR": str(spare), "XDG_CACHE_HOME": ""}
    done = run_alone(["run", "run.yaml"], work, environment)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in work.iterdir()} == {"run.yaml", ".heal", "out.cmf"}
    assert list(spare.iterdir()) == []
    assert not place.exists() or list(place.iterdir()) == []
