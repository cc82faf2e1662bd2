"""What a second heal runs again, and what it finds."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pytest
import torch
from torch import Tensor

from cmfio.reader import open_container
from conf.load import check
from conf.schema import RunConfig
from flows.ground import lay_ground, open_sets
from store.store import Store
from tasks.model_file import open_model
from tasks.progress import SilentProgress
from tasks.stage import Runtime
from tests.builders import TinyModel, model_of, write_model
from tests.small_heal import Ground, HealRun, heal, write_records

AFTER_TRAINING = ["rewrite_model keep", "measure_draft healed keep", "report"]
GAIN = "model.layers.0.input_layernorm.weight"
MATRIX = "model.layers.1.mlp.up_proj.weight"


def changed(model: TinyModel, change: Mapping[str, Tensor]) -> TinyModel:
    return model_of(model.arch, {**model.tensors, **change})


def shard_states(student: Path, ground: Ground) -> list[str]:
    """The states of the trunk's shards once the ground of a heal is laid."""
    runtime = Runtime(store=Store(ground.store))
    config = check(RunConfig, ground.config(), "small")
    lay_ground(open_model(student, runtime), config, open_sets(config, runtime), runtime)
    return [e.state for e in runtime.ledger.events if e.name == "trunk_shard"]


def test_an_identical_run_runs_no_stage(ground: Ground) -> None:
    assert heal(ground.config(), ground.store).made == []


def test_another_learning_rate_reruns_training_and_what_follows(ground: Ground) -> None:
    run = heal(ground.config(train={"lr": 3e-3}), ground.store)
    assert run.made == ["train_draft heal", *AFTER_TRAINING]


def test_another_codec_reruns_nothing_before_the_files(
    ground: Ground, tmp_path: Path
) -> None:
    outputs = [{"codec": "f32", "path": str(tmp_path / "f32.cmf")}]
    run = heal(ground.config(outputs=outputs), ground.store)
    assert run.made == ["rewrite_model f32", "measure_draft healed f32", "report"]


def test_threads_and_memory_are_in_no_key(ground: Ground) -> None:
    runtime = Runtime(store=Store(ground.store), threads=2, head_budget_bytes=1 << 20)
    assert heal(ground.config(), ground.store, runtime).made == []


def ids_of_windows(run: HealRun) -> list[list[int]]:
    with pa.memory_map(str(run.path("pack_windows") / "windows.arrow")) as file:
        ids: list[list[int]] = pa.ipc.open_file(file).read_all()["ids"].to_pylist()
    return ids


def shard_keys(run: HealRun) -> list[str]:
    return [e.key for e in run.runtime.ledger.events if e.name == "trunk_shard"]


def test_another_record_reruns_only_the_shards_with_changed_windows(
    ground: Ground, tmp_path: Path
) -> None:
    before = heal(ground.config(), ground.store)
    records = [list(record) for record in ground.records]
    records[7] = [1 + i % 200 for i in range(len(records[7]))]
    data = [{"path": str(write_records(tmp_path / "new.jsonl", records)), "name": "own"}]
    after = heal(ground.config(data=data), ground.store)
    pairs = zip(ids_of_windows(before), ids_of_windows(after), strict=True)
    touched = {i // 8 for i, (old, new) in enumerate(pairs) if old != new}
    keys = zip(shard_keys(before), shard_keys(after), strict=True)
    assert 0 < len(touched) < 7
    assert {i for i, (old, new) in enumerate(keys) if old != new} == touched
    assert after.made == [
        "pack_windows",
        *["trunk_shard"] * len(touched),
        "trunk_pass",
        "measure_draft stale",
        "train_draft heal",
        *AFTER_TRAINING,
    ]


def test_a_renamed_data_set_keeps_the_trunks_rows(ground: Ground) -> None:
    run = heal(ground.config(data=[str(ground.data)]), ground.store)
    assert "pack_windows" in run.made
    assert not {"trunk_shard", "trunk_pass"} & set(run.made)


def with_a_flat_gain(model: TinyModel, value: float) -> TinyModel:
    return changed(model, {GAIN: torch.full_like(model.read(GAIN), value)})


def with_rows_swapped(model: TinyModel) -> TinyModel:
    matrix = model.read(MATRIX)
    return changed(model, {MATRIX: matrix[[1, 0, *range(2, len(matrix))]]})


def with_other_attention(model: TinyModel) -> TinyModel:
    name = "model.layers.0.self_attn.k_proj.weight"
    return changed(model, {name: model.read(name) + 0.01})


@pytest.mark.parametrize(
    ("tensor", "before", "after"),
    [
        (GAIN, lambda m: with_a_flat_gain(m, 1.0), lambda m: with_a_flat_gain(m, 2.0)),
        (MATRIX, lambda m: m, with_rows_swapped),
    ],
    ids=["a gain replaced by another constant", "two rows swapped"],
)
def test_a_change_the_containers_hash_cannot_see_misses_the_trunks_rows(
    ground: Ground,
    tmp_path: Path,
    tensor: str,
    before: Callable[[TinyModel], TinyModel],
    after: Callable[[TinyModel], TinyModel],
) -> None:
    old = write_model(tmp_path / "old.cmf", before(ground.model))
    new = write_model(tmp_path / "new.cmf", after(ground.model))
    with open_container(old) as a, open_container(new) as b:
        assert a.entries[tensor].hash64 == b.entries[tensor].hash64
        assert a.payload(tensor) != b.payload(tensor)
    shard_states(old, ground)
    assert set(shard_states(old, ground)) == {"cached"}
    assert set(shard_states(new, ground)) == {"ran"}


def test_other_attention_weights_miss_the_trunks_rows(
    ground: Ground, tmp_path: Path
) -> None:
    new = write_model(tmp_path / "new.cmf", with_other_attention(ground.model))
    assert set(shard_states(ground.student, ground)) == {"cached"}
    assert set(shard_states(new, ground)) == {"ran"}


def test_a_draft_retrained_in_the_same_file_keeps_the_trunks_rows(
    ground: Ground, tmp_path: Path
) -> None:
    student = Path(shutil.copy(ground.student, tmp_path / "model.cmf"))
    assert set(shard_states(student, ground)) == {"cached"}
    name = "model.mtp.layers.0.mlp.up_proj.weight"
    write_model(student, changed(ground.model, {name: -ground.model.read(name)}))
    run = heal(ground.config(student=str(student)), ground.store)
    assert run.made == ["measure_draft stale", "train_draft heal", *AFTER_TRAINING]


@pytest.mark.parametrize("way", ["copied", "moved", "linked"])
def test_a_model_file_elsewhere_keeps_everything(
    ground: Ground, tmp_path: Path, way: str
) -> None:
    first = Path(shutil.copy(ground.student, tmp_path / "first.cmf"))
    there = tmp_path / "there" / "other name.cmf"
    there.parent.mkdir()
    if way == "moved":
        heal(ground.config(student=str(first)), ground.store)
        first.rename(there)
    elif way == "copied":
        shutil.copy(first, there)
    else:
        there.symlink_to(first)
    run = heal(ground.config(student=str(there)), ground.store)
    assert run.made == ["report"]  # its page shows the configuration, and so the path


def chunks(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "c").rglob("*") if path.is_file())


def zero(path: Path, *, keep_time: bool) -> None:
    status = path.stat()
    path.chmod(0o644)
    path.write_bytes(bytes(status.st_size))
    if keep_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def a_shard(ground: Ground) -> Path:
    return sorted((ground.store / "trunk_shard").iterdir())[3]


def said(run: HealRun) -> str:
    assert isinstance(run.runtime.progress, SilentProgress)
    return "\n".join(run.runtime.progress.said)


@pytest.mark.parametrize("array", ["hidden", "topk_p"])
@pytest.mark.parametrize("way", ["deleted", "zeroed"])
def test_a_damaged_chunk_of_the_trunks_rows_is_made_again(
    ground: Ground, array: str, way: str
) -> None:
    shard = a_shard(ground)
    chunk = chunks(shard / array)[-1]
    whole = chunk.read_bytes()
    if way == "deleted":
        chunk.unlink()
    else:
        zero(chunk, keep_time=False)
    run = heal(ground.config(), ground.store)
    assert run.made == ["trunk_shard"]  # it came back as it was: all else is still a hit
    assert chunk.read_bytes() == whole
    assert "trunk_shard: damaged, set aside and made again" in said(run)


def test_a_chunk_zeroed_behind_its_files_time_is_found_before_training(
    ground: Ground,
) -> None:
    zero(chunks(a_shard(ground) / "hidden")[0], keep_time=True)
    run = heal(ground.config(train={"lr": 4e-3}), ground.store)
    assert sorted(run.made) == sorted(["trunk_shard", "train_draft heal", *AFTER_TRAINING])


def test_a_deleted_chunk_of_a_measure_is_made_again(ground: Ground) -> None:
    (measure,) = (
        e.key
        for e in heal(ground.config(), ground.store).runtime.ledger.events
        if e.label == "healed keep"
    )
    chunks(ground.store / "measure_draft" / measure / "hit")[0].unlink()
    again = heal(ground.config(), ground.store)
    assert again.made == ["measure_draft healed keep", "report"]  # which tells its seconds
