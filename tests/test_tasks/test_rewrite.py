"""The healed file: the student, byte for byte, with another draft and a provenance."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from cmfio.header import dump_header
from cmfio.reader import Container, open_container
from tasks.errors import InputError
from tasks.publish import publish
from tests.builders import TinySpec, tiny_qwen3, write_model
from tests.small_heal import VOCAB, Ground, heal, small_model

BLOCK = {"trainable": "block"}
BEFORE_BLOCK = {f"model.mtp.{name}.weight" for name in ("enorm", "hnorm", "eh_proj")}
PROVENANCE = {  # healing.md §9, and ours
    *("data", "tokens", "windows", "chain", "stride", "steps", "best_step", "lr", "topk"),
    *("hard", "heldout_kl_start", "heldout_kl_best", "heldout_hold_start"),
    *("heldout_hold_best", "init", "trunk", "layout", "wiring", "trainable", "loss"),
    *("split", "select_by", "on_path", "anchors", "window", "seed", "isolate"),
    *("refresh", "step_weights", "through_chain", "optimizer"),
    *("heldout_kind_kl_start", "heldout_kind_kl_best"),
}


def draft_names(container: Container) -> set[str]:
    return {name for name in container.entries if name.startswith("model.mtp.")}


def test_a_healed_file_is_the_student_but_for_the_trained_tensors(
    ground: Ground, tmp_path: Path
) -> None:
    out = tmp_path / "healed.cmf"
    outputs = [{"codec": "keep", "path": str(out)}]
    run = heal(ground.config(outputs=outputs, train=BLOCK), ground.store)
    trained = load_file(run.path("train_draft") / "draft.safetensors")
    with open_container(ground.student) as before, open_container(out) as after:
        assert list(after.entries) == list(before.entries)
        replaced = draft_names(before) - BEFORE_BLOCK
        for name in before.entries:
            assert after.entries[name].dtype == before.entries[name].dtype
            if name not in replaced:
                assert after.payload(name) == before.payload(name), name
            else:
                stored = trained[name].astype("<f2").tobytes()
                assert bytes(after.payload(name)) == stored, name
                assert after.payload(name) != before.payload(name), name
        old, new = before.header.to_json(), after.header.to_json()
        provenance = new.pop("provenance")
        assert isinstance(provenance, dict)
        assert provenance.keys() == {"mtp_heal"}
        old.pop("provenance", None)
        assert new == old


def test_a_codec_rewrites_only_what_was_trained(ground: Ground, tmp_path: Path) -> None:
    out = tmp_path / "healed.cmf"
    outputs = [{"codec": "f32", "path": str(out)}]
    run = heal(ground.config(outputs=outputs, train=BLOCK), ground.store)
    trained = load_file(run.path("train_draft") / "draft.safetensors")
    with open_container(ground.student) as before, open_container(out) as after:
        for name in BEFORE_BLOCK:
            assert after.payload(name) == before.payload(name), name
        for name in draft_names(before) - BEFORE_BLOCK:
            is_matrix = len(before.entries[name].shape) == 2
            assert after.entries[name].dtype == ("f32" if is_matrix else "f16")
            if is_matrix:
                assert np.array_equal(after.tensor(name), trained[name]), name
    numbers = run.files.report.codecs[0]
    assert numbers.file_bytes == out.stat().st_size


def test_provenance_says_all_and_names_no_folder(ground: Ground) -> None:
    run = heal(ground.config(train=BLOCK), ground.store)
    with open_container(run.path("rewrite_model") / "model.cmf") as healed:
        header = json.loads(dump_header(healed.header))
    said = header["provenance"]["mtp_heal"]
    assert said.keys() == PROVENANCE
    assert [data["name"] for data in said["data"]] == ["own"]
    assert said["data"][0].keys() == {"name", "sha256"}
    assert (said["tokens"], said["windows"], said["chain"]) == (1600, 50, 2)
    assert (said["steps"], said["best_step"], said["topk"]) == (12, 8, 8)
    assert (said["lr"], said["hard"], said["init"]) == (1e-2, 0.0, None)
    assert (said["layout"], said["loss"], said["split"]) == ("exact", "tail_kl", "records")
    assert str(ground.student.parent) not in json.dumps(said)


def test_a_student_without_a_draft_gets_all_of_inits(
    ground: Ground, tmp_path: Path
) -> None:
    bare = tiny_qwen3(TinySpec(vocab=VOCAB, draft=None))
    student = write_model(tmp_path / "bare.cmf", bare)
    out = tmp_path / "healed.cmf"
    run = heal(
        ground.config(
            student=str(student),
            init=str(ground.student),
            outputs=[{"codec": "keep", "path": str(out)}],
            train={"lr": 1e-12, "steps": 1},  # what it starts from is what it ends with
        ),
        ground.store,
    )
    with open_container(ground.student) as init, open_container(out) as healed:
        assert draft_names(healed) == draft_names(init)
        for name in draft_names(init):
            assert healed.payload(name) == init.payload(name), name
        assert healed.header.arch.mtp is not None
        assert list(healed.entries)[: len(bare.shapes)] == list(bare.shapes)
    origin = run.files.report.provenance["init"]
    assert isinstance(origin, dict)
    assert origin["name"] == "model.cmf"


def test_init_gives_block_and_norm_and_the_student_the_rest(
    ground: Ground, tmp_path: Path
) -> None:
    init = write_model(tmp_path / "init.cmf", small_model(seed=5))
    out = tmp_path / "healed.cmf"
    heal(
        ground.config(
            init=str(init),
            outputs=[{"codec": "keep", "path": str(out)}],
            train={"lr": 1e-12, "steps": 1},
        ),
        ground.store,
    )
    with (
        open_container(ground.student) as student,
        open_container(init) as other,
        open_container(out) as healed,
    ):
        for name in draft_names(student):
            source = student if name in BEFORE_BLOCK else other
            assert healed.payload(name) == source.payload(name), name


def test_a_fresh_draft_starts_from_the_last_layer_and_is_trained_whole(
    ground: Ground, tmp_path: Path
) -> None:
    bare = tiny_qwen3(TinySpec(vocab=VOCAB, draft=None))
    out = tmp_path / "healed.cmf"
    run = heal(
        ground.config(
            student=str(write_model(tmp_path / "bare.cmf", bare)),
            start_from_last_layer=True,
            outputs=[{"codec": "keep", "path": str(out)}],
        ),
        ground.store,
    )
    assert run.files.report.start == "fresh"
    start = load_file(run.path("start_draft") / "draft.safetensors")
    last = bare.read("model.layers.1.mlp.up_proj.weight").half().float().numpy()
    assert np.array_equal(start["model.mtp.layers.0.mlp.up_proj.weight"], last)
    trained = load_file(run.path("train_draft") / "draft.safetensors")
    with open_container(out) as healed:
        assert draft_names(healed) == start.keys()
        for name in start:
            assert bytes(healed.payload(name)) == trained[name].astype("<f2").tobytes()
    assert run.files.report.provenance["trainable"] == "all"


def test_publishing_makes_folders_and_replaces_a_file(tmp_path: Path) -> None:
    (tmp_path / "model.cmf").write_bytes(b"new")
    target = tmp_path / "a" / "b" / "out.cmf"
    publish(tmp_path / "model.cmf", target)
    target.write_bytes(b"old")
    publish(tmp_path / "model.cmf", target)
    assert target.read_bytes() == b"new"
    assert [path.name for path in target.parent.iterdir()] == ["out.cmf"]


def test_a_path_that_cannot_be_written_leaves_the_result_in_the_store(
    tmp_path: Path,
) -> None:
    (tmp_path / "model.cmf").write_bytes(b"new")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"kept in the store as .*model\.cmf"):
        publish(tmp_path / "model.cmf", tmp_path / "file" / "out.cmf")
