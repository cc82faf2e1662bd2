"""`heal plan` against what the run then does: the run is the oracle."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from flows.cli import app
from flows.plan import Plan, plan_run
from store.store import Store
from tests.small_heal import Ground, heal, write_records

ROOT = Path(__file__).parents[2]
AFTER_TRAINING = ["rewrite_model keep", "measure_draft healed keep", "report"]


def written(folder: Path, raw: dict[str, Any]) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


def planned(
    ground: Ground, folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any
) -> Plan:
    written(folder, ground.config(**changes))
    monkeypatch.chdir(folder)
    return plan_run("small.yaml", [], ground.store)


def missing(plan: Plan) -> list[str]:
    return [f"{stage.name} {stage.label}".rstrip() for stage in plan.missing]


def why(plan: Plan, name: str) -> str:
    return next(stage.why for stage in plan.missing if stage.name == name)


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    statuses = {str(path): path.stat() for path in folder.rglob("*")}
    return {name: (s.st_mtime_ns, s.st_size) for name, s in statuses.items()}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"train": {"lr": 3e-3}},
        {"trunk": {"topk": 9}},
        {"outputs": [{"codec": "f32", "path": "f32.cmf"}]},
        {"start_from_last_layer": True},
    ],
    ids=["nothing", "lr", "topk", "codec", "fresh draft"],
)
def test_what_is_planned_is_what_then_runs(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    foretold = missing(planned(ground, tmp_path, monkeypatch, **changes))
    assert foretold == heal(ground.config(**changes), ground.store).made


def test_what_waits_may_be_found_after_all_and_the_plan_says_so(
    ground: Ground, tmp_path: Path
) -> None:
    raw = ground.config(measure={"depth": 3})
    config = written(tmp_path, raw)
    line = ["plan", str(config), "--store", str(ground.store)]
    said = CliRunner().invoke(app, line).stdout
    assert "depth is 3, was 2" in said
    assert "A stage that waits for another is found after all if" in said
    # A deeper chain packs the same windows: the trunk's rows and the training stay.
    assert "runs      train_draft heal" in said
    assert "train_draft heal" not in heal(raw, ground.store).made


def test_what_a_pass_pays_once_is_told_once(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = [a.manifest for a in Store(ground.store).artifacts() if a.stage == "trunk_shard"]
    plan = planned(ground, tmp_path, monkeypatch, trunk={"topk": 9})
    first, *later = [s.cost.seconds for s in plan.missing if s.name == "trunk_shard"]
    # As near as its own rows of another topk is none: each is told by those.
    # What comes once and what goes with the work, added up again: an ulp may differ.
    pays = next(one for one in past if one.seconds == pytest.approx(first, rel=1e-12))
    paces = [one.notes["at_pace_s"] for one in past if one is not pays]
    assert len(later) == len(paces) == 6
    assert sorted(filter(None, later)) == pytest.approx(sorted(filter(None, paces)))
    assert all(one.notes["at_pace_s"] <= one.seconds for one in past)


SMALL: list[tuple[dict[str, Any], int]] = [
    ({}, 0),
    ({}, 9),
    ({"train": {"batch": 6}}, 40),
    ({"pack": {"window": 4000, "split": "windows"}}, 40),
    ({"pack": {"window": 60, "split": "windows"}}, 12),
]


@pytest.mark.parametrize(("changes", "records"), SMALL)
def test_a_plan_refuses_small_data_as_the_run_does(
    finished: Ground, tmp_path: Path, changes: dict[str, Any], records: int
) -> None:
    data = write_records(tmp_path / "few.jsonl", finished.records[:records])
    config = written(tmp_path, finished.config(data=[str(data)], **changes))
    said = []
    for verb in ("plan", "run"):
        line = [verb, str(config), "--store", str(tmp_path / "store")]
        done = CliRunner().invoke(app, line)
        assert isinstance(done.exception, SystemExit), done.exception
        errors = [one for one in done.stderr.splitlines() if one.startswith("error: ")]
        said.append((done.exit_code, done.stdout, errors))
        if verb == "plan":
            assert not (tmp_path / "store").exists()
    assert said[0] == said[1]
    assert (said[0][0], len(said[0][2])) == (2, 1)


def test_small_data_is_told_exactly_and_large_data_by_its_caps(
    finished: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, finished.config())
    exact = plan_run("small.yaml", [], tmp_path / "store")
    assert any(f"at most {40 * 40:,} tokens" in note for note in exact.notes)
    monkeypatch.setattr("tasks.pack.SOON_READ_BYTES", 100)
    capped = plan_run("small.yaml", [], tmp_path / "store")
    assert any("at most 393,216 tokens" in note for note in capped.notes)


def test_a_changed_setting_is_named_with_both_values(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(ground, tmp_path, monkeypatch, train={"lr": 3e-3})
    key = next((ground.store / "train_draft").iterdir()).name
    assert missing(plan) == ["train_draft heal", *AFTER_TRAINING]
    assert why(plan, "train_draft") == f"lr is 0.003, was 0.01 (in train_draft/{key[:8]})"
    assert why(plan, "rewrite_model") == "train_draft runs"
    assert [stage.key is None for stage in plan.missing] == [False, True, True, True]


def test_a_changed_input_is_named(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [[1, 2, 3] * 10, *ground.records]
    data = write_records(tmp_path / "other.jsonl", records)
    plan = planned(ground, tmp_path, monkeypatch, data=[{"path": str(data), "name": "own"}])
    assert why(plan, "pack_windows").startswith("input sets[0] is another (in pack_windows")
    # Nobody can know before packing which shards stay: they are planned as one.
    assert missing(plan)[:3] == ["pack_windows", "trunk_shard", "trunk_pass"]
    assert why(plan, "trunk_shard") == "pack_windows runs"
    assert why(plan, "trunk_pass") == "trunk_shard runs"


def test_an_empty_store_has_nothing_to_compare_with(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, ground.config())
    monkeypatch.chdir(tmp_path)
    plan = plan_run("small.yaml", [], tmp_path / "new")
    assert plan.missing == list(plan.stages)
    assert why(plan, "pack_windows") == "there is no pack_windows in this store yet"
    assert not (tmp_path / "new").exists()


def test_a_cut_stage_tells_where_it_was_cut(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (trained,) = (ground.store / "train_draft").iterdir()
    (trained / "record.json").unlink()
    (trained / "work").mkdir()
    (trained / "work" / "progress.json").write_text('{"line": "training: 7 of 12 steps"}')
    plan = planned(ground, tmp_path, monkeypatch)
    assert missing(plan)[0] == "train_draft heal"
    assert "broke off here (training: 7 of 12 steps)" in why(plan, "train_draft")


def test_damage_is_told_and_left_alone(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (trained,) = (ground.store / "train_draft").iterdir()
    (trained / "draft.safetensors").unlink()
    plan = planned(ground, tmp_path, monkeypatch)
    assert why(plan, "train_draft").startswith("damaged: ")
    assert "draft.safetensors: is missing" in why(plan, "train_draft")
    assert trained.exists()


def test_a_plan_writes_nothing(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A model that no run has read: its digests are taken, and not remembered.
    new = shutil.copy(ground.student, tmp_path / "new.cmf")
    os.utime(new, ns=(1, 1))
    written(tmp_path, ground.config(student=str(new)))
    before = snapshot(ground.store) | snapshot(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert missing(plan_run("small.yaml", ["train.lr=1e-3"], ground.store))
    assert snapshot(ground.store) | snapshot(tmp_path) == before


def test_bytes_and_time_are_scaled_from_the_nearest_past_run(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (trained,) = (ground.store / "train_draft").iterdir()
    manifest = json.loads((trained / "manifest.json").read_bytes())
    plan = planned(ground, tmp_path, monkeypatch, train={"steps": 48})
    cost = next(s.cost for s in plan.missing if s.name == "train_draft")
    # Four times the steps: as much longer as steps take, and the same draft.
    pace = manifest["notes"]["at_pace_s"]
    assert manifest["numbers"]["steps"] == 12
    assert cost.seconds == pytest.approx(manifest["seconds"] + 3 * pace)
    assert 0 < pace <= manifest["seconds"]
    assert cost.size_bytes == sum(file["size"] for file in manifest["files"].values())


def test_the_command_line_says_it_without_torch(ground: Ground, tmp_path: Path) -> None:
    config = written(tmp_path, ground.config(train={"lr": 3e-3}))
    program = (
        "import sys\nfrom flows.cli import main\ntry:\n    main()\nfinally:\n"
        "    print(sorted({'torch', 'transformers', 'prefect'} & set(sys.modules)),"
        " file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "plan", str(config), "--store", str(ground.store)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert done.stderr == "[]\n"
    assert max(map(len, done.stdout.splitlines()[1:])) <= 80
    assert "of 14 stages would run: about " in done.stdout
    assert "lr is 0.003, was 0.01" in done.stdout


def test_a_plan_as_json(ground: Ground, tmp_path: Path) -> None:
    config = written(tmp_path, ground.config())
    line = ["plan", str(config), "--store", str(ground.store), "--json"]
    told = json.loads(CliRunner().invoke(app, [*line, "--set", "trunk.topk=9"]).stdout)
    assert told["runs"] == sum(stage["state"] == "runs" for stage in told["stages"])
    shard = next(stage for stage in told["stages"] if stage["name"] == "trunk_shard")
    assert shard["differences"] == [
        {"kind": "setting", "name": "topk", "here": 9, "there": 8}
    ]


def test_a_shipped_demonstration_can_be_planned(tmp_path: Path) -> None:
    line = ["plan", "demo", "--store", str(tmp_path / "none"), "--json"]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, done.stderr
    stages = json.loads(done.stdout)["stages"]
    assert [stage["name"] for stage in stages][:3] == [
        "train_tokenizer",
        "pack_windows",
        "train_demo_trunk",
    ]
    assert {stage["state"] for stage in stages} == {"runs"}
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"student": "gone.cmf"}, "gone.cmf"),
        ({"data": ["gone.jsonl"]}, "there is no such file"),
        ({"outputs": [{"codec": "q9", "path": "x.cmf"}]}, "q9"),
    ],
)
def test_what_would_stop_the_run_stops_the_plan(
    ground: Ground, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    config = written(tmp_path, ground.config(**change))
    done = CliRunner().invoke(app, ["plan", str(config), "--store", str(ground.store)])
    assert done.exit_code == 2
    assert words in done.stderr
