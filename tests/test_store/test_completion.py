import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from store.arrays import create_array
from store.completion import (
    StageResult,
    drop_work,
    finish,
    mark_resumed,
    prepare,
    was_resumed,
)
from store.errors import ArtifactError, NotJson
from store.manifest import Manifest, Origin, Recipe, key_of

RECIPE = Recipe(stage="make", version=2, settings={"lr": 2e-05}, inputs={"trunk": "ab"})
ORIGIN = Origin(machine="cpu", versions={}, started="2026", seconds=1.5, resumed=False)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_key_is_the_digest_of_the_recipe() -> None:
    spelled = '{"inputs":{"trunk":"ab"},"settings":{"lr":2e-05},"stage":"make","version":2}'
    assert key_of(RECIPE) == sha(spelled)[:32]


def test_manifest_says_what_lies_there(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.txt").write_text("one")
    (tmp_path / "a.txt").write_text("two")
    create_array(tmp_path, "rows", (2, 3), "u2", "raw")[:] = np.zeros((2, 3), "u2")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "ckpt-1").write_text("half")
    reference = finish(tmp_path, RECIPE, StageResult(numbers={"n": 1}), ORIGIN)
    data = (tmp_path / "manifest.json").read_bytes()
    assert reference.manifest == hashlib.sha256(data).hexdigest()
    said = json.loads(data)
    assert said["files"]["b/x.txt"]["sha256"] == sha("one")
    assert said["arrays"] == {
        "rows": {"shape": [2, 3], "dtype": "uint16", "chunks": [1, 3]}
    }
    names = sorted(said["files"])
    assert names == ["a.txt", "b/x.txt", "rows/c/0/0", "rows/c/1/0", "rows/zarr.json"]
    pairs = ",".join(f'["{name}","{said["files"][name]["sha256"]}"]' for name in names)
    assert said["content"] == sha(f"[{pairs}]")
    drop_work(tmp_path)
    assert not (tmp_path / "work").exists()


def test_finished_files_are_read_only_and_folders_can_be_deleted(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("one")
    finish(tmp_path, RECIPE, StageResult(), ORIGIN)
    for name in ("x", "manifest.json"):
        assert (tmp_path / name).stat().st_mode & 0o222 == 0
    assert tmp_path.stat().st_mode & 0o200


def test_numbers_are_content_and_notes_are_not(tmp_path: Path) -> None:
    def digest(result: StageResult) -> str:
        prepare(tmp_path)
        (tmp_path / "x").write_text("same")
        finish(tmp_path, RECIPE, result, ORIGIN)
        return Manifest.model_validate_json(
            (tmp_path / "manifest.json").read_bytes()
        ).content_digest

    plain = digest(StageResult())
    assert digest(StageResult(notes={"tokens_per_s": 3.0})) == plain
    assert digest(StageResult(numbers={"rate": 3.0})) != plain
    assert digest(StageResult(numbers={"rate": 3.0})) != digest(StageResult({"rate": 4.0}))


def test_numbers_that_are_no_json_stop_the_stage(tmp_path: Path) -> None:
    with pytest.raises(NotJson, match=r"numbers\.loss is a numpy\.float32"):
        finish(tmp_path, RECIPE, StageResult({"loss": np.float32(1)}), ORIGIN)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "folder", "dangling", "pipe"])
def test_links_and_devices_are_no_content(tmp_path: Path, kind: str) -> None:
    target = {"file": "/etc/hostname", "folder": "/tmp", "dangling": "/nowhere"}
    if kind == "pipe":
        os.mkfifo(tmp_path / "x")
    else:
        (tmp_path / "x").symlink_to(target[kind])
    with pytest.raises(ArtifactError, match="plain files only"):
        finish(tmp_path, RECIPE, StageResult(), ORIGIN)


def test_the_stores_own_names_are_taken(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text("{}")
    with pytest.raises(ArtifactError, match="the store's own"):
        finish(tmp_path, RECIPE, StageResult(), ORIGIN)


def test_an_array_with_unwritten_chunks_is_not_finished(tmp_path: Path) -> None:
    create_array(tmp_path, "rows", (3, 2), "f4", "raw")[1] = np.zeros(2, "f4")
    with pytest.raises(ArtifactError, match="1 of 3 chunks"):
        finish(tmp_path, RECIPE, StageResult(), ORIGIN)


def test_preparing_keeps_only_what_can_be_resumed(tmp_path: Path) -> None:
    out = tmp_path / "make" / "key"
    assert prepare(out) is False
    (out / "half.arrow").write_text("x")
    (out / "rows").mkdir()
    (out / "rows" / "c").write_text("x")
    (out / "link").symlink_to(tmp_path)
    mark_resumed(out)
    (out / "work" / "ckpt-1").write_text("state")
    assert was_resumed(out)
    assert prepare(out) is True
    assert [p.relative_to(out).as_posix() for p in out.rglob("*")] == [
        "work",
        "work/ckpt-1",
    ]
    assert not was_resumed(out)
    assert tmp_path.exists()
