"""A model or a text that is replaced while a run is at it: told, and never mixed."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cmfio.hf_identity import file_digests
from cmfio.identity import model_digests
from conf.demo import FoldSettings
from flows.fold import fold_to
from store.store import Store
from tasks.errors import InputError
from tasks.model_file import ModelFile, open_model
from tasks.rank_job import _name
from tasks.stage import Runtime
from tests.builders import write_model
from tests.small_heal import Ground, heal, small_ground, small_model, write_records
from tests.test_tasks.test_checkpoint_heal import Place, files_of
from tests.test_tasks.test_streamed_pass import Shown
from tests.test_tasks.test_streamed_pass import passed as streamed_pass
from tests.tiny_checkpoints import Wishes, make_checkpoint

CHANGED = "changed while the run was at it"
# Called once the student is opened, once the draft is trained, once all is written.
OPENED, TRAINED, WRITTEN = "check_drafts", "heal_provenance", "publish_outputs"


def before(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], object]) -> None:
    """Has `act` done right before the flow calls its function of this name."""
    import flows.heal

    own = getattr(flows.heal, name)

    def first(*args: object) -> object:
        act()
        return own(*args)

    monkeypatch.setattr(flows.heal, name, first)


def config(ground: Ground, out: Path) -> dict[str, object]:
    outputs = [{"codec": "keep", "path": str(out)}]
    return ground.config(outputs=outputs, train={"steps": 4})


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another model of the same shapes and size."""
    return write_model(tmp_path / "other.cmf", small_model(seed=1))


@pytest.mark.parametrize("moment", [OPENED, TRAINED])
@pytest.mark.parametrize("way", ["renamed over", "written over", "gone"])
def test_a_student_replaced_before_it_is_written(
    tmp_path: Path, other: Path, monkeypatch: pytest.MonkeyPatch, moment: str, way: str
) -> None:
    ground, out = small_ground(tmp_path), tmp_path / "out.cmf"
    first = ground.student.read_bytes()

    def change() -> None:
        if way == "renamed over":
            other.replace(ground.student)
        elif way == "written over":
            ground.student.write_bytes(other.read_bytes())
        else:
            ground.student.unlink()

    with monkeypatch.context() as patch:
        before(patch, moment, change)
        said = "there is no such file" if way == "gone" else CHANGED
        with pytest.raises(Exception, match=rf"model\.cmf.*{said}"):
            heal(config(ground, out), ground.store)
    assert not out.exists()
    assert not list(ground.store.glob("rewrite_model/*/record.json"))
    ground.student.write_bytes(first)
    heal(config(ground, out), ground.store)
    heal(config(ground, tmp_path / "clean.cmf"), tmp_path / "another store")
    assert out.read_bytes() == (tmp_path / "clean.cmf").read_bytes()


def test_what_is_written_already_is_of_one_version(
    tmp_path: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground, out = small_ground(tmp_path), tmp_path / "out.cmf"
    heal(config(ground, tmp_path / "clean.cmf"), ground.store)
    before(monkeypatch, WRITTEN, lambda: other.replace(ground.student))
    heal(config(ground, out), ground.store)
    assert out.read_bytes() == (tmp_path / "clean.cmf").read_bytes()


@pytest.mark.parametrize("moment", [OPENED, TRAINED, WRITTEN])
@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "NOTES.md"])
def test_a_folder_replaced_before_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, file: str
) -> None:
    place, out = Place(tmp_path, "qwen3_5", Wishes(shards=1)), tmp_path / "out"
    place.heal()
    clean = {name: data for name, (data, _) in files_of(out).items()}
    shutil.rmtree(out)
    if moment != WRITTEN:
        shutil.rmtree(tmp_path / "store" / "rewrite_checkpoint")
    kept = shutil.copytree(place.student, tmp_path / "kept")
    new = make_checkpoint(tmp_path / "new", "qwen3_5", Wishes(shards=1, seed=1))
    (new / "NOTES.md").write_text("new")
    with (new / "config.json").open("a") as config:
        config.write("\n")
    with monkeypatch.context() as patch:
        before(patch, moment, lambda: (new / file).replace(place.student / file))
        with pytest.raises(InputError, match=f"{file}: {CHANGED}"):
            place.heal()
    assert not out.exists()
    shutil.rmtree(place.student)
    shutil.copytree(kept, place.student)
    place.heal()
    assert {name: data for name, (data, _) in files_of(out).items()} == clean


def test_text_replaced_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground, out = small_ground(tmp_path), tmp_path / "out.cmf"
    new = write_records(tmp_path / "new.jsonl", [r[::-1] for r in ground.records])
    before(monkeypatch, "lay_ground", lambda: new.replace(ground.data))
    with pytest.raises(InputError, match=rf"own\.jsonl: {CHANGED}"):
        heal(config(ground, out), ground.store)
    assert not list(ground.store.glob("pack_windows/*/record.json"))


def test_text_replaced_once_it_is_packed_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground, out = small_ground(tmp_path), tmp_path / "out.cmf"
    heal(config(ground, tmp_path / "clean.cmf"), tmp_path / "another store")
    new = write_records(tmp_path / "new.jsonl", [r[::-1] for r in ground.records])
    before(monkeypatch, TRAINED, lambda: new.replace(ground.data))
    heal(config(ground, out), ground.store)
    assert out.read_bytes() == (tmp_path / "clean.cmf").read_bytes()


@pytest.mark.parametrize("layout", ["cmf", "hf"])
def test_a_model_replaced_while_it_is_looked_at_is_not_remembered_as_the_old_one(
    tmp_path: Path, other: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    if layout == "cmf":
        path, new = write_model(tmp_path / "model.cmf", small_model()), other
        file = path
    else:
        wishes = Wishes(shards=1, seed=1)
        path = make_checkpoint(tmp_path / "student", "qwen3_5", Wishes(shards=1))
        new = make_checkpoint(tmp_path / "new", "qwen3_5", wishes) / "model.safetensors"
        file = path / new.name
    runtime = Runtime(store=Store(tmp_path / "store"))
    own: Callable[..., object] = model_digests if layout == "cmf" else file_digests

    def read(*args: object) -> object:
        found = own(*args)
        new.replace(file)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(f"tasks.model_file.{own.__name__}", read)
        with pytest.raises(InputError, match=f"{file.name}: {CHANGED}"):
            open_model(path, runtime)
    fresh = Runtime(store=Store(tmp_path / "another store"))
    assert open_model(path, runtime).digests == open_model(path, fresh).digests


def test_ranks_are_not_sent_to_another_model(tmp_path: Path, other: Path) -> None:
    path = write_model(tmp_path / "model.cmf", small_model())
    runtime = Runtime(store=Store(tmp_path / "store"))
    draft = open_model(path, runtime).draft
    assert _name(draft).path == path  # type: ignore[union-attr]  # a part is no artifact
    other.replace(path)
    with pytest.raises(InputError, match=rf"model\.cmf: {CHANGED}"):
        _name(draft)


def test_a_streamed_trunk_that_is_replaced_leaves_no_row(
    tmp_path: Path, other: Path
) -> None:
    ground, progress = small_ground(tmp_path), Shown()

    def on_layer(_done: int) -> None:
        if other.exists():
            other.replace(ground.student)

    progress.on_layer = on_layer
    runtime = Runtime(Store(ground.store), placement="stream", progress=progress)
    with pytest.raises(InputError, match=rf"model\.cmf: {CHANGED}"):
        streamed_pass(ground, runtime)
    assert not list(ground.store.glob("trunk_shard/*/record.json"))


def test_a_model_replaced_before_it_is_folded(
    tmp_path: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out = write_model(tmp_path / "model.cmf", small_model()), tmp_path / "out.cmf"

    def opened(*args: Any) -> ModelFile:
        found = open_model(*args)
        other.replace(model)
        return found

    monkeypatch.setattr("flows.fold.open_model", opened)
    runtime = Runtime(store=Store(tmp_path / "store"))
    with pytest.raises(InputError, match=rf"model\.cmf: {CHANGED}"):
        fold_to(model, out, FoldSettings(ffn=(0.5,)), runtime)
    assert not out.exists()
    assert not list(runtime.store.root.glob("fold_model/*/record.json"))
