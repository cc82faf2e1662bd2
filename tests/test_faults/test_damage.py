"""Damage to a finished store, and to the model file: found before use, said, mended."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cmfio.reader import open_container
from tests.small_heal import Ground
from tests.test_faults.faults import Fault
from tests.test_faults.lab import Lab


def harm(path: Path, way: str) -> None:
    """One bit turned where it counts, the end cut off, or all of it gone."""
    data = bytearray(path.read_bytes())
    if way == "flipped":
        is_record = path.name == "record.json"  # the most of it is Prefect's own
        data[data.index(b"manifest") + 20 if is_record else len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data[: {"flipped": len(data), "cut": len(data) // 2, "empty": 0}[way]])


DAMAGE = [
    ("train_draft", "record.json", "cut"),
    ("train_draft", "record.json", "empty"),
    ("trunk_shard", "record.json", "flipped"),
    ("trunk_shard", "manifest.json", "flipped"),
    ("trunk_pass", "manifest.json", "empty"),
    ("trunk_shard", "hidden/c/*/0/0", "flipped"),
    ("trunk_shard", "topk_p/c/*/0/0", "cut"),
    ("measure_draft", "hit/zarr.json", "flipped"),
    ("pack_windows", "windows.arrow", "flipped"),
    ("train_draft", "draft.safetensors", "flipped"),
    ("rewrite_model", "model.cmf", "flipped"),
    ("rewrite_model", "model.cmf", "empty"),
]


@pytest.mark.parametrize(("stage", "name", "way"), DAMAGE)
def test_what_is_damaged_is_set_aside_and_made_again(
    uncut: Lab, lab: Lab, stage: str, name: str, way: str
) -> None:
    harm(next(iter((lab.store / stage).glob(f"*/{name}"))), way)
    run = lab.finish()
    assert f"{stage}: damaged, set aside and made again: " in run.said
    assert lab.contents() == uncut.contents()
    assert len(list((lab.store / "damaged").glob(f"{stage}-*"))) == 1


@pytest.mark.parametrize("way", ["moved", "copied"])
def test_a_store_elsewhere_is_the_same_store(lab: Lab, way: str) -> None:
    there = lab.root / "elsewhere"
    if way == "copied":  # with new times, as `cp -r` gives them
        subprocess.run(["cp", "-r", str(lab.store), str(there)], check=True)
        shutil.rmtree(lab.store)
    else:
        lab.store.rename(there)
    run = replace(lab, store=there).finish()
    for stage in ("pack_windows", "trunk_shard", "trunk_pass", "train_draft"):
        assert set(run.states(stage)) == {"cached"}, stage


def test_a_checkpoint_that_rotted_is_said_and_ignored(uncut: Lab, lab: Lab) -> None:
    lab.drop("train_draft")
    assert lab.start(Fault("kill", "os.rename", "*ckpt-facts.json", 7)).code() == -9
    for path in lab.store.glob("train_draft/*/work/ckpt-*.safetensors"):
        harm(path, "flipped")
    run = lab.finish()
    assert "is damaged (ckpt-6-2.safetensors changed since it was written)" in run.said
    assert "training starts over" in run.said
    assert run.states("train_draft") == ["ran"]
    assert lab.contents() == uncut.contents()


def a_tensor_in(model: Path) -> tuple[str, int]:
    """A tensor of the trunk, and where in the file it begins."""
    with open_container(model) as container:
        payload = bytes(container.payload("model.layers.1.mlp.up_proj.weight"))
    return "model.layers.1.mlp.up_proj.weight", model.read_bytes().index(payload)


def test_a_damaged_model_file_is_refused_by_the_tensors_name(
    lab: Lab, files: Ground
) -> None:
    student = Path(shutil.copy(files.student, lab.root / "model.cmf"))
    name, place = a_tensor_in(student)
    data = bytearray(student.read_bytes())
    data[place + 5] ^= 1
    student.write_bytes(data)
    change = ("--set", f"student={student}")
    run = lab.start(arguments=("run", str(lab.config), *lab.options, *change))
    assert run.code() == 2, run.said
    assert f"{student}: tensor {name!r}" in run.error
    assert "damaged" in run.error
    assert not lab.out.exists()
