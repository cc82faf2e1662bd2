"""A heal of a Hugging Face folder: student, init and output."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from cmfio.hf_import import import_hf
from cmfio.models import open_weights
from cmfio.reader import open_container
from nets.trunk import build_trunk
from store.store import Store
from tasks.errors import InputError
from tasks.model_file import open_model, weights_of
from tasks.publish import Target, refuse_bad_outputs
from tasks.stage import Runtime
from tests.small_heal import HealRun, heal, short_heal, write_records
from tests.tiny_checkpoints import VOCAB, Wishes, make_checkpoint

torch.set_num_threads(1)


def own_records(folder: Path) -> list[list[int]]:
    """What the trunk writes greedily, so that rows count."""
    with open_weights(folder) as model:
        weights = weights_of(model)
        trunk = build_trunk(
            model.header.arch,
            weights.shapes,
            weights.read,
            device="cpu",
            dtype=torch.float32,
        )
    ids = torch.arange(60)[:, None] * 7 % VOCAB
    with torch.no_grad():
        for _ in range(39):
            last = trunk.final_norm(trunk.hidden(ids)[:, -1])
            ids = torch.cat([ids, trunk.logits(last).argmax(-1, keepdim=True)], dim=1)
    return [[int(i) for i in row] for row in ids]


class Place:
    """A folder with a student, its text and a store."""

    def __init__(self, root: Path, family: str, wishes: Wishes) -> None:
        self.root = root
        self.student = make_checkpoint(root / "student", family, wishes)
        write_records(root / "own.jsonl", own_records(self.student))

    def heal(self, **changes: Any) -> HealRun:
        raw = short_heal(self.root, self.student, **changes)
        return heal(raw, self.root / "store")

    def output(self, codec: str, name: str) -> dict[str, str]:
        return {"codec": codec, "path": str(self.root / name)}


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for path in folder.glob("*.safetensors"):
        found |= load_file(path)
    return found


def files_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and file time of everything in a folder."""
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()}


def test_a_folder_comes_out_with_a_new_draft_and_nothing_else_new(tmp_path: Path) -> None:
    place = Place(tmp_path, "glm4_moe", Wishes(mtp_layers=2, first=46))
    (place.student / "LICENSE").write_text("own")
    before = files_of(place.student)
    place.heal()
    assert files_of(place.student) == before
    out = tmp_path / "out"
    given, found = tensors_of(place.student), tensors_of(out)
    assert found.keys() == given.keys()
    changed = {name for name in given if not torch.equal(given[name], found[name])}
    assert changed
    assert all(name.startswith("model.layers.46.") for name in changed)
    assert {tensor.dtype for tensor in found.values()} == {torch.bfloat16}
    assert {p.name for p in out.iterdir()} == before.keys() | {"mtp_heal.json"}
    for name in before.keys() - {"mtp_heal.json"}:
        assert not (out / name).samefile(place.student / name)
    said = json.loads((out / "mtp_heal.json").read_text("utf-8"))["mtp_heal"]
    assert said["steps"] == 8
    loaded, report = transformers.AutoModelForCausalLM.from_pretrained(
        out, output_loading_info=True
    )
    assert type(loaded).__name__ == "Glm4MoeForCausalLM"
    assert not report["missing_keys"]


def test_numbers_name_the_healed_layer_and_a_cmf_can_be_written_too(tmp_path: Path) -> None:
    place = Place(tmp_path, "glm4_moe", Wishes(mtp_layers=2, first=46))
    keep, cmf = place.output("keep", "out"), place.output("q8_row", "out.cmf")
    run = place.heal(outputs=[keep, cmf])
    out = tmp_path / "out"
    patch = run.path("rewrite_checkpoint")
    numbers = Store(tmp_path / "store").load(patch.parent.name, patch.name)
    assert numbers is not None
    assert numbers.numbers["healed"] == "model.layers.46"
    assert numbers.numbers["kept"] == ["model.layers.47"]
    with open_container(tmp_path / "out.cmf") as written, open_weights(out) as folder:
        up = "model.mtp.layers.0.mlp.shared_expert.up_proj.weight"
        assert written.entries[up].dtype == "q8_row"
        assert written.entries.keys() == folder.entries.keys()
        assert written.payload("model.norm.weight") == folder.payload("model.norm.weight")
    codecs = [row.codec for row in run.files.report.codecs]
    assert codecs == ["keep", "q8_row .cmf"]


def test_again_all_is_cached_and_a_tokenizers_edit_spares_the_trunk(tmp_path: Path) -> None:
    place = Place(tmp_path, "qwen3_5", Wishes(mtp_layers=0))
    fresh = {"start_from_last_layer": True}
    first = place.heal(**fresh)
    assert any(name.startswith("trunk_shard") for name in first.made)
    assert (tmp_path / "out" / "model-mtp.safetensors").is_file()
    assert place.heal(**fresh).made == []
    with (place.student / "tokenizer.json").open("a") as file:
        file.write("\n")
    made = [name.split()[0] for name in place.heal(**fresh).made]
    assert not {"trunk_shard", "train_draft", "pack_windows"} & set(made)
    assert "rewrite_checkpoint" in made
    tail = (tmp_path / "out" / "tokenizer.json").read_bytes()
    assert tail == (place.student / "tokenizer.json").read_bytes()
    # What was written is a student in its turn, and its trunk the same.
    runtime = Runtime(store=Store(tmp_path / "store"))
    healed = open_model(tmp_path / "out", runtime)
    source = open_model(place.student, runtime)
    assert healed.digests.trunk == source.digests.trunk
    assert healed.head is not None
    assert (healed.layout, healed.head.healed) == ("hf", "mtp.layers.0")
    assert source.head is None


def test_a_folder_gives_its_draft_to_a_cmf(tmp_path: Path) -> None:
    place = Place(tmp_path, "qwen3", Wishes(shards=1))
    bare = make_checkpoint(tmp_path / "bare", "qwen3", Wishes(shards=1, mtp_layers=0))
    import_hf(bare, tmp_path / "bare.cmf")
    place.heal(
        student=str(tmp_path / "bare.cmf"),
        init=str(place.student),
        outputs=[place.output("keep", "out.cmf")],
        train={"depth": 1, "lr": 1e-12, "steps": 1, "batch": 4},
    )
    with open_container(tmp_path / "out.cmf") as out, open_weights(place.student) as init:
        names = [name for name in init.entries if name.startswith("model.mtp.")]
        assert names
        for name in names:  # a new tensor is stored as f16: 11 bits of bf16's 8
            assert (out.tensor(name) == init.tensor(name)).all(), name


def test_outputs_are_refused_before_anything_runs(tmp_path: Path) -> None:
    student = make_checkpoint(tmp_path / "student", "qwen3", Wishes(shards=1))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    (tmp_path / "file").touch()

    def refused(path: Path, text: str, codec: str = "keep") -> None:
        with pytest.raises(InputError, match=text):
            refuse_bad_outputs([Target(path, codec, "hf")], {"student": student})

    refused(student, "is the student")
    refused(student / "sub", "lie in one another")
    refused(tmp_path, "lie in one another")
    refused(tmp_path / "full", "weren't written here")
    refused(tmp_path / "file", "is a file; the student is a folder")
    refused(tmp_path / "new", r"a path that ends in \.cmf", "q4tp")
    refuse_bad_outputs([Target(tmp_path / "new", "bf16", "hf")], {"student": student})


def test_files_of_other_making_are_never_replaced(tmp_path: Path) -> None:
    place = Place(tmp_path, "ernie4_5", Wishes())
    place.heal()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"also has notes\.txt"):
        place.heal()
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"
    (tmp_path / "out" / "notes.txt").unlink()
    place.heal()
    shutil.rmtree(tmp_path / "out")


def test_a_damaged_student_is_found_out_after_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cmfio.errors import DamagedTensor
    from tasks import publish

    def flipping(source: Path, out: Path) -> None:
        data = bytearray(source.read_bytes())
        data[-1] ^= 1
        out.write_bytes(data if out.name.startswith("model-00001") else source.read_bytes())

    place = Place(tmp_path, "mimo", Wishes())
    monkeypatch.setattr(publish, "copy_file", flipping)
    with pytest.raises(DamagedTensor, match="isn't as it was written"):
        place.heal()
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.partial").exists()
