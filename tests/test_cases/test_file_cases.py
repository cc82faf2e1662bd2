"""Weights and formats: section D of the cases that other projects met."""

import json
import tracemalloc
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from cmfio.reader import open_container
from conf.base import RAW
from flows.cli import app
from tests.builders import TinySpec, model_of, tiny_qwen3, write_model
from tests.planted import planted_ground
from tests.small_heal import VOCAB, Ground, heal
from tests.test_cases.conftest import Folder, Make
from tests.test_flows.test_bad_input import complaint
from tests.test_tasks.test_checkpoint_heal import tensors_of
from tests.test_ui.pages import read_page
from tests.tiny_checkpoints import Wishes, save_shards
from ui.answers import best_codec
from ui.verdict import doubts

INDEX = "model.safetensors.index.json"


def made(root: Path) -> list[str]:
    """The artifacts in the store that `complaint` uses."""
    store = root / "own store"
    return sorted(path.parent.name for path in store.glob("*/record.json"))


def without_draft(folder: Folder, kept: int = 0) -> None:
    """What a fine-tuning tool leaves: the config as it was, the draft's tensors gone."""
    tensors = tensors_of(folder.student)
    for path in folder.student.glob("*.safetensors*"):
        path.unlink()
    lost = [name for name in tensors if name.startswith("mtp.")][kept:]
    save_shards(folder.student, {n: t for n, t in tensors.items() if n not in lost}, 2)


def edit_text_config(folder: Path, **changes: object) -> None:
    """Settings of the text model changed; None takes one away."""
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    text = config.get("text_config", config)
    text |= changes
    for name in [name for name, value in changes.items() if value is None]:
        del text[name]
    path.write_text(json.dumps(config), "utf-8")


def test_d2_a_promised_draft_that_is_not_in_the_files(make_folder: Make) -> None:
    folder = make_folder("qwen3_5", Wishes(), with_text=False)
    without_draft(folder)
    said = complaint(folder.config(), folder.root)
    assert "carries no MTP draft (no model.mtp.* tensors)" in said
    assert "config.json promises one" in said
    assert "`init`" in said
    assert "start_from_last_layer: true" in said
    assert made(folder.root) == []


def test_d2_a_container_that_promises_one(finished: Ground, tmp_path: Path) -> None:
    bare = tiny_qwen3(TinySpec(vocab=VOCAB, draft=None))
    arch = finished.model.arch
    assert arch.mtp is not None
    student = write_model(tmp_path / "m.cmf", model_of(arch, bare.tensors))
    said = complaint(finished.config(student=str(student)), tmp_path)
    assert "its header promises one" in said
    assert made(tmp_path) == []


def test_d2_half_a_draft(make_folder: Make) -> None:
    folder = make_folder("qwen3_5", Wishes(), with_text=False)
    without_draft(folder, kept=5)
    said = complaint(folder.config(), folder.root)
    assert "the model's draft lacks tensor 'model.mtp." in said
    assert made(folder.root) == []


def test_d3_a_draft_that_the_config_does_not_mention(make_folder: Make) -> None:
    folder = make_folder("qwen3_5", Wishes(shards=1))
    edit_text_config(folder.student, mtp_num_hidden_layers=None)
    config = folder.root / "run.yaml"
    config.write_text(json.dumps(folder.config()))
    given = ["run", str(config), "--store", str(folder.root / "store")]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.stderr
    assert "its config.json does not mention the draft that its tensors hold" in done.stderr
    written = json.loads((folder.root / "out" / "config.json").read_text("utf-8"))
    assert written["text_config"]["mtp_num_hidden_layers"] == 1
    said = json.loads((folder.root / "out" / "mtp_heal.json").read_text("utf-8"))
    assert said["mtp_heal"]["draft"] == "inferred from its tensors"
    assert tensors_of(folder.root / "out").keys() == tensors_of(folder.student).keys()


def test_d5_five_codecs_one_of_them_far_too_coarse(tmp_path: Path) -> None:
    """A neuron that is off has the one large weight of each row: q1 gives all its size."""
    ground = planted_ground(tmp_path, RAW)
    tensors, mlp = ground.model.tensors, "model.mtp.layers.0.mlp."
    tensors[f"{mlp}gate_proj.weight"] = tensors[f"{mlp}gate_proj.weight"].clone()
    tensors[f"{mlp}gate_proj.weight"][0] = 0
    tensors[f"{mlp}down_proj.weight"] = torch.zeros_like(tensors[f"{mlp}down_proj.weight"])
    tensors[f"{mlp}down_proj.weight"][:, 0] = 5e4
    tensors[f"{mlp}up_proj.weight"] = 20 * tensors[f"{mlp}up_proj.weight"]
    write_model(ground.student, model_of(ground.model.arch, tensors), dtype="f32")
    codecs = ("keep", "f16", "q8_row", "q4_block", "q1")
    outputs = [{"codec": c, "path": str(tmp_path / f"{c}.cmf")} for c in codecs]
    run = heal(
        ground.config(train={"epochs": 0, "steps": None}, outputs=outputs), ground.store
    )
    rows = {row.codec: row for row in run.files.report.codecs}
    assert set(rows) == set(codecs)
    # Side by side: what each file holds and what it weighs; the smallest is no default.
    assert rows["q1"].draft_bytes < rows["q4_block"].draft_bytes < rows["f16"].draft_bytes
    assert rows["keep"].drafts_held > 1.5
    assert rows["q1"].drafts_held < 0.5 * rows["keep"].drafts_held
    best = best_codec(run.files.report.codecs)
    assert best is not None
    assert best.codec != "q1"
    (said,) = [text for text in doubts(run.files.report) if text.startswith("q1 ")]
    assert "too coarse" in said
    assert said in read_page(run.files.page.read_text()).text


def cut(path: Path, size: int) -> Path:
    path.write_bytes(path.read_bytes()[:size])
    return path


@pytest.mark.parametrize("way", ["tail", "header", "empty", "absent"])
def test_d7_a_shard_that_was_cut(make_folder: Make, way: str) -> None:
    folder = make_folder("qwen3", Wishes(shards=2), with_text=False)
    shard = folder.student / "model-00002-of-00002.safetensors"
    size = shard.stat().st_size
    if way == "absent":
        shard.unlink()
    else:
        cut(shard, {"tail": size - 100, "header": 40, "empty": 0}[way])
    said = complaint(folder.config(), folder.root)
    assert shard.name in said
    assert f"but {INDEX} names it" in said if way == "absent" else "cut short" in said
    assert made(folder.root) == []


def test_d8_a_tied_head_stays_the_embedding(make_folder: Make) -> None:
    folder = make_folder("qwen3", Wishes(shards=1))
    heal(folder.config(start_from_last_layer=True), folder.root / "store")
    before, after = tensors_of(folder.student), tensors_of(folder.root / "out")
    assert "lm_head.weight" not in before
    assert after.keys() == before.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    places = [folder.student, folder.root / "out"]
    sizes = {(place / "model.safetensors").stat().st_size for place in places}
    assert len(sizes) == 1


def test_d8_a_tied_head_under_a_name_of_its_own(make_folder: Make) -> None:
    """One storage under two names, as some tools write it: both stay, both as they were."""
    folder = make_folder("qwen3", Wishes(shards=1))
    twice = tensors_of(folder.student)
    twice["lm_head.weight"] = twice["model.embed_tokens.weight"].clone()
    save_shards(folder.student, twice, 1)
    size = (folder.student / "model.safetensors").stat().st_size
    heal(folder.config(), folder.root / "store")
    after = tensors_of(folder.root / "out")
    assert after.keys() == twice.keys()
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        assert torch.equal(after[name], twice[name])
    assert (folder.root / "out" / "model.safetensors").stat().st_size == size


def test_d8_in_a_container(finished: Ground) -> None:
    run = heal(finished.config(), finished.store)
    healed = run.path("rewrite_model") / "model.cmf"
    with open_container(finished.student) as before, open_container(healed) as after:
        assert "lm_head.weight" not in before.entries
        assert after.entries.keys() == before.entries.keys()
        for name, entry in before.entries.items():
            assert after.entries[name].nbytes == entry.nbytes, name


def test_d9_a_width_that_is_no_whole_number_of_blocks(
    finished: Ground, tmp_path: Path
) -> None:
    """The draft's FFN has 40 columns, a block has 32 weights: what may not cross rows is
    stored as q8_2f.
    """
    codecs = ("q4_block", "q4_tiled", "q1")
    outs = {codec: tmp_path / f"{codec}.cmf" for codec in codecs}
    outputs = [{"codec": c, "path": str(out)} for c, out in outs.items()]
    heal(finished.config(outputs=outputs), tmp_path / "store")
    name = "model.mtp.layers.0.mlp.down_proj.weight"
    # By hand: 18 bytes a block of 32 weights; a byte a weight, 2 a row's or column's scale.
    wanted = {"q4_block": ("q4_block", 32 * 40 // 32 * 18)}
    for codec in codecs[1:]:
        wanted[codec] = ("q8_2f", 32 * 40 + 2 * 32 + 2 * 40)
    for codec, out in outs.items():
        with open_container(out) as written:
            entry = written.entries[name]
            assert entry.shape == (32, 40)
            assert (entry.dtype, entry.nbytes) == wanted[codec]
            assert written.tensor(name).shape == entry.shape
    out = outs["q4_block"]
    assert "cut short" in complaint(
        finished.config(student=str(cut(out, out.stat().st_size - 1))), tmp_path
    )


def test_d10_a_header_of_a_terabyte_and_one_without_tensors(make_folder: Make) -> None:
    folder = make_folder("qwen3", Wishes(shards=1), with_text=False)
    path = folder.student / "model.safetensors"
    path.write_bytes((1 << 40).to_bytes(8, "little"))
    with path.open("r+b") as file:
        file.truncate((1 << 40) + 4096)  # takes no room: a file of holes
    tracemalloc.start()
    said = complaint(folder.config(), folder.root)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "claims a header of 1,099,511,627,776 bytes" in said
    assert peak < 64 << 20
    text = b'{"__metadata__": {"format": "pt"}}'
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    said = complaint(folder.config(), folder.root)
    assert "model.embed_tokens.weight" in said
    assert made(folder.root) == []
