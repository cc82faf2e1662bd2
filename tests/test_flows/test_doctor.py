"""`heal doctor` on models that are sound, and on those that people have."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from conf.base import RAW, Wiring
from flows.cli import app
from tests.builders import TinyModel, TinySpec, model_of, tiny_llama, write_model
from tests.planted import planted_ground, planted_model
from tests.small_heal import VOCAB, WINDOW, Ground, as_healed, write_records
from tests.test_flows.examined import SMALL, examined
from tests.tiny_checkpoints import Wishes, make_checkpoint

MIXED = Wiring(hidden="normed", chain="raw")


def test_a_sound_model_and_its_data(tmp_path: Path) -> None:
    ground = planted_ground(tmp_path, RAW)
    told = examined(ground.student, str(ground.data), *SMALL)
    assert told.code == 0
    assert told.report.keys() == {"model", "findings", "probe", "blocks"}
    facts = "\n".join(told.of("fact"))
    for said in (
        "planted.cmf: a .cmf, Llama: 2 layers of 32; a head of its own",
        "norms: gain w",
        "every tensor has the hash that was recorded",
        "the draft's wiring is hidden raw, chain raw: clearly",
        "data set noise.jsonl: 60 windows, 6 of them held out; 1,920 tokens",
        "data set noise.jsonl: coverage 46%",  # of half the tokens, on four windows
        "stages would run",
        "GFLOP/s of a product: bf16",
        "trunk: held in memory",
    ):
        assert said in facts, said
    biases = "\n".join(told.of("biases"))
    assert "carries no tokenizer: data must have a column `ids`" in biases
    assert "6 windows are held out: the intervals of what is measured are wide" in biases
    assert told.report["probe"]["wiring"] == {"hidden": "raw", "chain": "raw"}


def test_text_the_trunk_would_not_write(tmp_path: Path) -> None:
    ground = planted_ground(tmp_path, RAW)
    records = [record[::-1] for record in ground.records]
    data = write_records(tmp_path / "backwards.jsonl", records)
    told = examined(ground.student, str(data), *SMALL)
    assert told.code == 0
    (said,) = (one for one in told.of("biases") if "coverage" in one)
    assert re.match("data set backwards.jsonl: coverage [0-3]%: the trunk would have", said)


def test_without_data_only_the_files_are_looked_at(tmp_path: Path) -> None:
    told = examined(planted_ground(tmp_path, RAW).student)
    assert (told.code, told.report["probe"]) == (0, None)
    assert not (tmp_path / "doctor store" / "pack_windows").exists()


def test_a_draft_for_other_runtimes_than_the_format_s_is_said(tmp_path: Path) -> None:
    ground = planted_ground(tmp_path, MIXED)
    told = examined(ground.student, str(ground.data), *SMALL)
    assert told.code == 0
    biases = "\n".join(told.of("biases"))
    assert "runtimes of this format feed a draft raw/raw, a heal would train" in biases
    assert "normed/raw; if yours is one of them, heal it to what that reads" in biases
    assert "probe.wiring: {hidden: raw, chain: raw}" in biases


def test_what_a_probe_refuses_blocks_and_the_table_is_there(tmp_path: Path) -> None:
    ground = planted_ground(tmp_path, RAW, is_swapped=True)
    told = examined(ground.student, str(ground.data), *SMALL)
    assert "reads the hidden row first" in told.blocking()
    assert len(told.report["probe"]["readings"]) == 8


def write(folder: Path, model: TinyModel, **changes: torch.Tensor | None) -> Path:
    """A file of the model with tensors of the draft changed, or left out for None."""
    changed = {f"model.mtp.{n.replace('_', '.')}.weight": t for n, t in changes.items()}
    tensors = {**model.tensors, **changed}
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    return write_model(folder / "m.cmf", model_of(model.arch, kept), dtype="f32")


def test_a_promised_draft_without_tensors(tmp_path: Path) -> None:
    model = tiny_llama()
    kept = {n: t for n, t in model.tensors.items() if not n.startswith("model.mtp.")}
    path = write_model(tmp_path / "m.cmf", model_of(model.arch, kept))
    said = examined(path).blocking()
    assert "the header promises an MTP draft that was dropped on the way" in said
    assert "`init`, or set `start_from_last_layer: true`" in said
    assert examined(path, "--set", "start_from_last_layer=true").code == 0


def test_one_tensor_of_the_draft_is_missing(tmp_path: Path) -> None:
    said = examined(write(tmp_path, tiny_llama(), hnorm=None)).blocking()
    assert "m.cmf: the model's draft lacks tensor 'model.mtp.hnorm.weight'" in said


def test_a_draft_the_header_does_not_mention(tmp_path: Path) -> None:
    model = tiny_llama(TinySpec(arch={"mtp": None}))
    told = examined(write(tmp_path, model))
    assert told.code == 0
    assert any(
        "that the header (arch.mtp) does not mention" in b for b in told.of("biases")
    )


def test_a_checkpoint_of_two_layers_and_a_value_that_is_not_finite(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hybrid", "mimo", Wishes(shards=1, mtp_layers=2))
    told = examined(folder)
    assert told.code == 0
    facts = "\n".join(told.of("fact"))
    assert "hybrid: a Hugging Face folder" in facts
    assert "MTP layer 0 is healed; layers 1 stay as they are, byte for byte" in facts
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["model.mtp_layers.0.token_layernorm.weight"][3] = torch.nan
    save_file(tensors, path, {"format": "pt"})
    said = examined(folder).blocking()
    assert "draft tensor 'model.mtp.enorm.weight' holds a value that isn't finite" in said


@pytest.mark.parametrize(
    ("arch", "words"),
    [
        ({"norm_style": "gemma"}, "arch.norm_style is 'gemma'"),
        ({"attention_heads_per_layer": (4, 2)}, "arch.attention_heads_per_layer is [4, 2]"),
        ({"partial_rotary_factor": 0.5}, "arch.partial_rotary_factor is 0.5"),
        ({"rms_norm_eps": 1e-6, "head_dim": 12}, "arch.head_dim"),
    ],
)
def test_a_header_against_its_tensors(
    tmp_path: Path, arch: dict[str, object], words: str
) -> None:
    told = examined(write(tmp_path, tiny_llama(TinySpec(arch=arch))))
    assert told.code == 2
    assert any(words in said for said in told.of("blocks")), told.report


def test_a_misshapen_draft_and_damage_are_both_said(tmp_path: Path) -> None:
    path = write(tmp_path, tiny_llama(), norm=torch.ones(31))
    data = bytearray(path.read_bytes())
    data[-5000] ^= 1
    path.write_bytes(data)
    told = examined(path)
    shape, damage = told.of("blocks")
    assert "tensor 'model.mtp.norm.weight' has shape [31]" in shape
    assert "hash mismatch" in damage
    assert "the file is damaged; copy or convert it again" in damage


def cut(path: Path) -> None:
    whole = write(path.parent, tiny_llama())
    path.write_bytes(whole.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (cut, "it was cut short, copy or convert it again"),
        (lambda path: None, "there is no such file; give a .cmf"),
        (lambda path: path.write_bytes(b""), "copy it again, or is none, give another"),
        (lambda path: path.write_text("this is no model. " * 40), "; give a .cmf, or the"),
        (lambda path: path.write_bytes(b"GGUF" * 99), "`cmf import-gguf` makes one of a"),
        (Path.mkdir, "is a folder without config.json; give a .cmf file or the folder of"),
        (os.mkfifo, "is a pipe; give a .cmf container"),
    ],
    ids=["cut", "absent", "empty", "text", "gguf", "bare", "pipe"],
)
def test_what_is_no_model_is_a_finding_with_what_to_do(
    tmp_path: Path, make: Callable[[Path], object], words: str
) -> None:
    make(tmp_path / "given.cmf")
    assert words in examined(tmp_path / "given.cmf").blocking()


def test_a_broken_checkpoint_is_a_finding_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    said = examined(tmp_path).blocking()
    assert "config.json isn't valid JSON" in said
    assert "; mend it, or download the checkpoint again" in said


def test_a_setting_that_is_none_is_bad_input(tmp_path: Path) -> None:
    assert examined(write(tmp_path, tiny_llama()), "--set", "train.dept=2").code == 2


@pytest.mark.parametrize(("record", "is_told"), [(MIXED, True), (RAW, False)])
def test_a_record_that_the_probe_denies_is_told_unless_another_s_draft_is_asked_for(
    tmp_path: Path, record: Wiring, *, is_told: bool
) -> None:
    ground = planted_ground(tmp_path, RAW)
    healed = as_healed(ground.student, record)
    denied = f"; a heal wrote it for {record.text} (hidden/chain), which names fewer"
    told = examined(healed, str(ground.data), *SMALL)
    assert any(denied in fact for fact in told.of("fact")) is is_told
    init = ["--set", f"init={ground.student}"]
    told = examined(healed, str(ground.data), *SMALL, *init)
    assert any("the draft's wiring is hidden raw" in fact for fact in told.of("fact"))
    assert not any("a heal wrote it for" in fact for fact in told.of("fact"))


def test_every_data_set_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    ground = planted_ground(tmp_path, RAW)
    absent = [str(tmp_path / f"{name}.jsonl") for name in "ab"]
    told = examined(ground.student, absent[0], str(ground.data), absent[1], *SMALL)
    assert told.code == 2
    assert [("a.jsonl" in said, "b.jsonl" in said) for said in told.of("blocks")] == [
        (True, False),
        (False, True),
    ]


def test_what_is_wrong_with_the_data_is_told_of_a_broken_model_too(tmp_path: Path) -> None:
    bare = write_model(tmp_path / "m.cmf", tiny_llama(TinySpec(vocab=VOCAB, draft=None)))
    (tmp_path / "empty.jsonl").write_text("")
    for data, words in (
        ("empty.jsonl", "empty.jsonl: is empty"),
        ("none.jsonl", "none.jsonl: there is no such"),
    ):
        told = examined(bare, str(tmp_path / data), *SMALL)
        of_model, of_data = told.of("blocks")
        assert "m.cmf" in of_model
        assert words in of_data
    cut(tmp_path / "given.cmf")
    told = examined(tmp_path / "given.cmf", str(tmp_path / "none.jsonl"), *SMALL)
    assert len(told.of("blocks")) == 2


def few_windows(ground: Ground) -> list[str]:
    data = write_records(ground.data.with_name("few.jsonl"), list(ground.records)[:12])
    return [str(data), *SMALL]


def text(ground: Ground) -> list[str]:
    data = ground.data.with_name("prose.txt")
    data.write_text("Some prose.\n\n" * 400)
    return [str(data), *SMALL]


def foreign_ids(ground: Ground) -> list[str]:
    records = [[VOCAB + 5] * WINDOW, *ground.records]
    return [str(write_records(ground.data.with_name("foreign.jsonl"), records)), *SMALL]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (few_windows, "12 windows of 32 tokens, 1 of them held out"),
        (text, "prose.txt: holds text and the model carries no tokenizer"),
        (foreign_ids, "the data was tokenised for another model"),
    ],
)
def test_data_that_a_run_refuses(
    tmp_path: Path, data: Callable[[Ground], list[str]], words: str
) -> None:
    ground = planted_ground(tmp_path, RAW)
    assert words in examined(ground.student, *data(ground)).blocking()


def test_an_init_of_other_shapes(tmp_path: Path) -> None:
    student = write_model(tmp_path / "student.cmf", planted_model(RAW), dtype="f32")
    wide = tiny_llama(TinySpec(vocab=VOCAB, draft=(2, 2, 48)))
    other = write_model(tmp_path / "other.cmf", wide, dtype="f32")
    assert examined(student, "--set", f"init={other}").code == 0  # a block of its own width
    bare = tiny_llama(TinySpec(vocab=VOCAB, draft=None))
    none = write_model(tmp_path / "none.cmf", bare, dtype="f32")
    assert "carries no draft" in examined(student, "--set", f"init={none}").blocking()
    tensors = dict(wide.tensors)
    tensors["model.mtp.norm.weight"] = torch.ones(16)
    narrow = write_model(tmp_path / "narrow.cmf", model_of(wide.arch, tensors), dtype="f32")
    told = examined(student, "--set", f"init={narrow}")
    assert any("model.mtp.norm.weight" in said for said in told.of("blocks"))


def test_a_disk_that_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ground = planted_ground(tmp_path, RAW)
    assert examined(ground.student, str(ground.data), *SMALL).code == 0
    monkeypatch.setattr("flows.doctor.free_bytes", lambda _: 1000)
    said = examined(ground.student, str(ground.data), *SMALL).blocking()
    assert "a heal writes" in said
    assert "1 kB are free; free some, choose another --store" in said


def test_lines_for_people_begin_with_what_blocks(tmp_path: Path) -> None:
    path = write(tmp_path, tiny_llama(), hnorm=None)
    done = CliRunner().invoke(app, ["doctor", str(path), "--store", str(tmp_path / "s")])
    lines = done.stdout.splitlines()
    assert lines[0].startswith("blocks  m.cmf: the model's draft lacks tensor")
    assert lines[-1] == "1 finding blocks a heal"
