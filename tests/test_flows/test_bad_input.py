"""Bad input through the real command line: exit code 2, one sentence, nothing written."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from conf.load import check
from conf.schema import RunConfig
from flows.cli import app
from flows.draft_checks import check_drafts
from store.store import Store
from tasks.model_file import open_model
from tasks.progress import SilentProgress
from tasks.stage import Runtime
from tests.builders import TinySpec, model_of, tiny_llama, tiny_qwen3, write_model
from tests.small_heal import VOCAB, Ground, write_records


def complaint(raw: Mapping[str, Any], folder: Path, *options: str) -> str:
    """What `heal run` says on stderr of a config it refuses."""
    config = folder / "run.yaml"
    config.write_text(yaml.safe_dump(dict(raw)))
    store = ["--store", str(folder / "own store")]
    done = CliRunner().invoke(app, ["run", str(config), *store, *options])
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    (line,) = (said for said in done.stderr.splitlines() if said.startswith("error: "))
    return line


def without_draft(path: Path) -> Path:
    return write_model(path, tiny_qwen3(TinySpec(vocab=VOCAB, draft=None)))


def damaged(source: Path, path: Path, *, cut: int = 0, flip: int | None = None) -> Path:
    data = bytearray(source.read_bytes())
    if flip is not None:
        data[flip] ^= 1
    path.write_bytes(data[: len(data) - cut])
    return path


def test_a_model_without_a_draft_is_told_both_ways_on(
    finished: Ground, tmp_path: Path
) -> None:
    student = without_draft(tmp_path / "bare.cmf")
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{")  # refused before any data is read
    said = complaint(finished.config(student=str(student), data=[str(broken)]), tmp_path)
    assert "bare.cmf: carries no MTP draft (no model.mtp.* tensors)" in said
    assert "`init`" in said
    assert "start_from_last_layer: true" in said


def test_an_init_without_a_draft_is_named(finished: Ground, tmp_path: Path) -> None:
    init = without_draft(tmp_path / "bare.cmf")
    said = complaint(finished.config(init=str(init)), tmp_path)
    assert "bare.cmf: carries no MTP draft" in said


@pytest.mark.parametrize(("lr", "is_told"), [(2e-5, True), (3e-3, False)])
def test_a_rate_at_which_a_fresh_draft_hardly_moves_is_told(
    finished: Ground, *, lr: float, is_told: bool
) -> None:
    raw = finished.config(start_from_last_layer=True, train={"lr": lr})
    progress = SilentProgress()
    runtime = Runtime(store=Store(finished.store), progress=progress)
    student = open_model(finished.student, runtime)
    check_drafts(check(RunConfig, raw, "small"), student, None, runtime)
    assert ("hardly moves" in " ".join(progress.said)) == is_told


def test_more_tokens_a_row_than_the_model_knows(finished: Ground, tmp_path: Path) -> None:
    said = complaint(finished.config(trunk={"topk": VOCAB + 1}), tmp_path)
    assert f"trunk.topk is {VOCAB + 1}: {finished.student} knows {VOCAB} tokens" in said


def test_too_few_windows(finished: Ground, tmp_path: Path) -> None:
    said = complaint(finished.config(train={"batch": 6}), tmp_path)
    assert "50 windows of 32 tokens, 5 of them held out" in said
    assert "train.batch 6 needs 60" in said


def test_no_held_out_window(finished: Ground, tmp_path: Path) -> None:
    records = [[1] * 40] * 40  # one record forty times: all follow the first copy
    data = write_records(tmp_path / "same.jsonl", records)
    said = complaint(finished.config(data=[str(data)]), tmp_path)
    assert "windows is held out" in said
    assert "give text that varies, or set pack.split: windows" in said


def test_fewer_than_ten_records(finished: Ground, tmp_path: Path) -> None:
    data = write_records(tmp_path / "few.jsonl", finished.records[:9])
    said = complaint(finished.config(data=[str(data)]), tmp_path)
    assert "data set few.jsonl: has 9 records, every tenth is held out" in said
    assert "pack.split: windows" in said


def test_a_truncated_container(finished: Ground, tmp_path: Path) -> None:
    student = damaged(finished.student, tmp_path / "short.cmf", cut=100)
    said = complaint(finished.config(student=str(student)), tmp_path)
    assert "short.cmf" in said
    assert "cut short" in said


def test_a_bad_tensor_hash(finished: Ground, tmp_path: Path) -> None:
    size = finished.student.stat().st_size
    student = damaged(finished.student, tmp_path / "flipped.cmf", flip=size - 1000)
    said = complaint(finished.config(student=str(student)), tmp_path)
    assert "flipped.cmf: tensor 'model." in said
    assert "the file is damaged" in said


def test_an_unknown_codec(finished: Ground, tmp_path: Path) -> None:
    outputs = [{"codec": "q5_best", "path": str(tmp_path / "out.cmf")}]
    said = complaint(finished.config(outputs=outputs), tmp_path)
    assert "no codec 'q5_best'; there are keep, f32, f16" in said


def test_text_without_a_tokenizer(finished: Ground, tmp_path: Path) -> None:
    text = tmp_path / "prose.txt"
    text.write_text("Some prose.\n\n" * 400)
    said = complaint(finished.config(data=[str(text)]), tmp_path)
    assert "prose.txt: holds text and the model carries no tokenizer" in said
    assert "`ids`" in said


@pytest.mark.parametrize("name", ["empty.jsonl", "empty.txt"])
def test_empty_data(finished: Ground, tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    said = complaint(finished.config(data=[str(tmp_path / name)]), tmp_path)
    assert f"data set {name}:" in said


def test_tdata_is_refused_with_what_to_write_instead(
    finished: Ground, tmp_path: Path
) -> None:
    (tmp_path / "code.tdata").write_bytes(b"x")
    said = complaint(finished.config(data=[f"{tmp_path}/code.tdata@5000"]), tmp_path)
    assert ".tdata is not read" in said
    assert "Parquet" in said
    assert "`ids`" in said
    assert "`split`" in said


def test_token_ids_of_another_model(finished: Ground, tmp_path: Path) -> None:
    records = [list(record) for record in finished.records]
    records[3][5] = VOCAB
    data = write_records(tmp_path / "foreign.jsonl", records)
    said = complaint(finished.config(data=[str(data)]), tmp_path)
    assert "data set foreign.jsonl: holds the token id 300" in said
    assert "ids below 300" in said


@pytest.mark.parametrize("bad", [-1, 1 << 32, 1.5, "7", True])
def test_ids_that_are_none(finished: Ground, tmp_path: Path, bad: object) -> None:
    data = tmp_path / "odd.jsonl"
    write_records(data, [*finished.records, [1, 2, bad]])  # type: ignore[list-item]
    said = complaint(finished.config(data=[str(data)]), tmp_path)
    assert "data set odd.jsonl: a record's `ids` is [1, 2, " in said


@pytest.mark.parametrize("way", ["itself", "dots", "symlink", "hard link", "folder link"])
def test_an_output_that_is_the_input(finished: Ground, tmp_path: Path, way: str) -> None:
    student = tmp_path / "models" / "model.cmf"
    student.parent.mkdir()
    before = finished.student.read_bytes()
    student.write_bytes(before)
    out = tmp_path / "out.cmf"
    if way == "symlink":
        out.symlink_to(student)
    elif way == "hard link":
        os.link(student, out)
    elif way == "folder link":
        (tmp_path / "there").symlink_to(student.parent)
        out = tmp_path / "there" / "model.cmf"
    else:
        out = student if way == "itself" else student.parent / ".." / "models/model.cmf"
    outputs = [{"codec": "keep", "path": str(out)}]
    said = complaint(finished.config(student=str(student), outputs=outputs), tmp_path)
    assert "inputs are never overwritten" in said
    assert student.read_bytes() == before


@pytest.mark.parametrize("command", ["run", "plan", "fold"])
def test_an_output_that_cannot_be_written(
    finished: Ground, tmp_path: Path, command: str
) -> None:
    outputs = [{"codec": "keep", "path": "/proc/healed.cmf"}]
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(finished.config(outputs=outputs)))
    given = [str(config)]
    if command == "fold":
        given = [str(finished.student), "/proc/healed.cmf", "--ffn", "0.5"]
    store = tmp_path / "own store"
    done = CliRunner().invoke(app, [command, *given, "--store", str(store)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "outputs: /proc/healed.cmf can't be written, /proc takes no new" in done.stderr
    assert not list(store.glob("*/*/record.json"))


def test_an_init_that_does_not_fit(finished: Ground, tmp_path: Path) -> None:
    model = tiny_qwen3()
    narrow = {"model.mtp.norm.weight": model.read("model.mtp.norm.weight")[:16]}
    other = model_of(model.arch, model.tensors | narrow)
    init = write_model(tmp_path / "narrow.cmf", other)
    said = complaint(finished.config(init=str(init)), tmp_path)
    assert f"{init}: init's draft doesn't fit the student" in said
    assert "name the model the student was made of" in said


def test_an_init_of_another_family(finished: Ground, tmp_path: Path) -> None:
    init = write_model(tmp_path / "llama.cmf", tiny_llama())
    said = complaint(finished.config(init=str(init)), tmp_path)
    assert "it has no 'model.mtp.layers.0.self_attn.k_norm.weight'" in said


def test_an_output_that_is_the_init(finished: Ground, tmp_path: Path) -> None:
    init = tmp_path / "init.cmf"
    init.write_bytes(finished.student.read_bytes())
    outputs = [{"codec": "keep", "path": str(init)}]
    said = complaint(finished.config(init=str(init), outputs=outputs), tmp_path)
    assert "is the init model" in said


def test_an_output_that_is_a_folder_or_stands_twice(
    finished: Ground, tmp_path: Path
) -> None:
    outputs = [{"codec": "keep", "path": str(tmp_path)}]
    assert "is a folder" in complaint(finished.config(outputs=outputs), tmp_path)
    twice = [{"codec": codec, "path": f"{tmp_path}/a.cmf"} for codec in ("keep", "f32")]
    assert "named twice" in complaint(finished.config(outputs=twice), tmp_path)


def test_a_config_typo_names_the_nearest_setting(finished: Ground, tmp_path: Path) -> None:
    said = complaint(finished.config(), tmp_path, "--set", "train.epoch=3")
    assert "train.epoch is no setting; did you mean epochs?" in said


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("student", "no such.cmf", "student: no such.cmf: there is no such file or folder"),
        ("init", "gone.cmf", "init: gone.cmf: there is no such file or folder"),
        ("student", "", "student: names no model"),
        ("student", ".", "is a folder"),
        (
            "data",
            ["no such.jsonl"],
            "data[0]: no such.jsonl: there is no such file, folder",
        ),
        ("data", ["python:topics", ""], "data[1]: names no path"),
        ("data", ["conf@5k"], "if '5k' behind @ is to cap the tokens taken, write a whole"),
        ("data", ["no such/**/*.md"], "there is no such file, folder or match"),
        ("data", ["python:topics", "python:topics"], "two sets are called python:topics"),
        ("data", ["own.jsonl@0"], "a cap of 0 tokens"),
    ],
)
def test_a_missing_file(
    finished: Ground, tmp_path: Path, key: str, value: object, words: str
) -> None:
    assert words in complaint(finished.config(**{key: value}), tmp_path)


def test_a_card_that_is_not_there(
    finished: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conf.machine.cuda_devices", lambda: 0)
    said = complaint(finished.config(runtime={"device": "cuda"}), tmp_path)
    assert "runtime.device is cuda: the driver offers 0 cards" in said


@pytest.mark.parametrize(
    "line", [["store", "ls"], ["status"], ["plan", "demo"], ["doctor"]]
)
def test_a_store_that_is_a_file_is_refused_at_once(tmp_path: Path, line: list[str]) -> None:
    place = tmp_path / "notes.txt"
    place.touch()
    given = [str(tmp_path / "no.cmf")] if line == ["doctor"] else []
    done = CliRunner().invoke(app, [*line, *given, "--store", str(place)])
    assert done.exit_code == 2
    assert f"store {place}: {place} is a file, and a store is a folder" in done.stderr
    inside = CliRunner().invoke(app, [*line, *given, "--store", str(place / "deeper")])
    assert (inside.exit_code, f"{place} is a file" in inside.stderr) == (2, True)


def test_a_share_above_one_is_complained_of_once(tmp_path: Path) -> None:
    given = ["fold", str(tmp_path / "a.cmf"), str(tmp_path / "b.cmf"), "--ffn", "2"]
    done = CliRunner().invoke(app, given)
    assert (done.exit_code, done.stderr.count("ffn[0] must be at most 1")) == (2, 1)
