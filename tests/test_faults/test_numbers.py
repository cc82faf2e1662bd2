"""Values that are not finite: found by whoever reads them, named, never saved."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from conf.load import check
from conf.schema import RunConfig
from flows.ground import Ground as Laid
from flows.ground import lay_ground, open_sets
from flows.heal import settings_of
from flows.wiring import Start
from nets.errors import TrainingError
from store.arrays import create_array, open_array
from store.artifact import Artifact
from store.store import Store
from tasks.model_file import open_model
from tasks.packed import read_windows
from tasks.stage import Runtime, stage
from tasks.trunk_pass import JoinSettings, join_shards
from tests.builders import model_of, write_model
from tests.small_heal import Ground
from tests.test_faults.lab import Lab
from tests.test_tasks.sample_stages import Text

ARRAYS = ("hidden", "topk_id", "topk_p")


@stage("poisoned_shard", version=1)
def poisoned_shard(
    out: Path, settings: Text, runtime: Runtime, *, shard: Artifact
) -> Mapping[str, object]:
    """A shard with one value changed: the text is its array, its window and the value."""
    array, window, value = settings.text.split()
    for name in ARRAYS:
        if name != array:
            shutil.copytree(shard.path / name, out / name)
    rows = open_array(shard.path, array)[:]
    rows[int(window), 3, 1] = float(value)
    create_array(out, array, rows.shape, "f4", "packed")[:] = rows
    return shard.numbers


@pytest.fixture
def raw(files: Ground) -> dict[str, Any]:
    """The settings of the finished heal."""
    return files.config(trunk={"shard_windows": 16})


def laid_ground(lab: Lab, raw: Mapping[str, Any]) -> tuple[Laid, RunConfig, Runtime]:
    runtime = Runtime(store=Store(lab.store))
    config = check(RunConfig, raw, "small")
    student = open_model(config.student, runtime)
    laid = lay_ground(student, config, open_sets(config, runtime), runtime)
    return laid, config, runtime


def poisoned(laid: Laid, array: str, window: int, value: str, runtime: Runtime) -> Laid:
    """The same ground with one value of one window's stored rows changed."""
    joined = JoinSettings.model_validate(laid.rows.manifest.settings)
    shards = list(runtime.store.parts(laid.rows))
    shard, place = divmod(window, joined.shard_windows)
    change = Text(text=f"{array} {place} {value}")
    shards[shard] = poisoned_shard(change, runtime, shard=shards[shard])
    return replace(laid, rows=join_shards(joined, runtime, shards=shards))


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("array", ["hidden", "topk_p"])
def test_c4_training_names_the_window_and_saves_nothing(
    lab: Lab, raw: dict[str, Any], array: str, value: str
) -> None:
    laid, config, runtime = laid_ground(lab, raw)
    window = read_windows(laid.windows).training[20]
    bad = poisoned(laid, array, window, value, runtime)
    start = Start(laid.model.draft)
    settings = settings_of(config, bad, start)
    with pytest.raises(TrainingError, match=f"window {window}: the trunk's stored rows"):
        bad.trained(start.draft, settings, runtime, "heal")
    assert len(list(lab.store.glob("train_draft/*/record.json"))) == 1  # the healthy one
    assert len(list(lab.store.glob("train_draft/*/draft.safetensors"))) == 1


@pytest.mark.parametrize("array", ["hidden", "topk_p"])
def test_c4_a_measure_names_the_window(lab: Lab, raw: dict[str, Any], array: str) -> None:
    laid, _, runtime = laid_ground(lab, raw)
    window = read_windows(laid.windows).held_out[3]
    bad = poisoned(laid, array, window, "nan", runtime)
    with pytest.raises(TrainingError, match=f"window {window}: the trunk's stored rows"):
        bad.measured(laid.model.draft, runtime, "stale")


def scaled(files: Ground, folder: Path, name: str, factor: float) -> Path:
    """The model with one tensor grown, finite as it is."""
    tensors = {**files.model.tensors, name: files.model.read(name) * factor}
    model = model_of(files.model.arch, tensors)
    return write_model(folder / "huge.cmf", model, dtype="f32")


def test_a_trunk_that_overflows_ends_the_run_before_any_training(
    lab: Lab, files: Ground, tmp_path: Path
) -> None:
    student = scaled(files, tmp_path, "model.layers.1.mlp.down_proj.weight", 3e38)
    change = ("--set", f"student={student}")
    run = lab.start(arguments=("run", str(lab.config), *lab.options, *change))
    assert run.code() == 2, run.said
    assert "the trunk's stored rows hold a value that isn't finite" in run.error
    assert "error: window " in run.error
    assert not lab.out.exists()


def test_a_fresh_draft_of_a_trunk_that_overflows_is_not_saved(
    lab: Lab, files: Ground, tmp_path: Path
) -> None:
    huge = {
        name: tensor * 3e38 if "layers.0.mlp.down_proj" in name else tensor
        for name, tensor in files.model.tensors.items()
        if "mtp" not in name
    }
    arch = files.model.arch.model_copy(update={"mtp": None})
    student = write_model(tmp_path / "huge.cmf", model_of(arch, huge), dtype="f32")
    change = ("--set", f"student={student}", "--set", "start_from_last_layer=true")
    run = lab.start(arguments=("run", str(lab.config), *lab.options, *change))
    assert run.code() == 2, run.said
    assert "finite" in run.error
    assert list(lab.store.glob("start_draft/*/record.json")) == []


def test_b7_the_20th_step_that_is_not_finite_ends_the_run(
    lab: Lab, files: Ground, tmp_path: Path
) -> None:
    """A gain so large that the losses are finite and the squares of their gradients not."""
    student = scaled(files, tmp_path, "model.mtp.norm.weight", 1e25)
    change = ("--set", f"student={student}", "--set", "train.steps=60")
    lab.drop("train_draft")
    run = lab.start(arguments=("run", str(lab.config), *lab.options, *change))
    assert run.code() == 2, run.said
    assert "step 1, windows " in run.error
    assert "that is the 20th step of this run that isn't finite; lower train.lr" in (
        run.error
    )
    assert list(lab.store.glob("train_draft/*/record.json")) == []
    assert list(lab.store.glob("train_draft/*/draft.safetensors")) == []


def test_a_draft_that_is_not_finite_is_never_written(tmp_path: Path) -> None:
    from tasks.drafts import write_draft_tensors

    tensors = {"a": torch.zeros(3), "b": torch.tensor([0.0, float("inf")])}
    with pytest.raises(TrainingError, match="draft tensor 'b' holds a value that isn't"):
        write_draft_tensors(tmp_path, tensors)
    assert list(tmp_path.iterdir()) == []
