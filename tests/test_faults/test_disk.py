"""A full or a read-only disk: one plain sentence, nothing lost, the next run goes on."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from store.errors import DiskFull
from store.store import Store
from tasks.demo_trunk import TokenizerSettings, train_tokenizer
from tasks.import_model import ForeignFile, ImportSettings, import_gguf
from tasks.sources import open_set
from tasks.stage import Runtime
from tests.builders import TinySpec, tiny_qwen3, write_model
from tests.gguf_files import write_gguf
from tests.small_heal import VOCAB, Ground
from tests.test_faults.faults import Fault, fill_disk
from tests.test_faults.lab import Lab, small_disk

# stage, event, file, how many before: the disk fills up right before it happens.
PLACES = [
    ("pack_windows", "open", "*/locks/pack_windows/*", 1),
    ("pack_windows", "open", "*pack_windows/*manifest.json*", 1),
    ("trunk_shard", "open", "*/hidden/c/*", 12),
    ("trunk_shard", "open", "*/topk_id/zarr.*", 2),
    ("trunk_pass", "open", "*trunk_pass/*record.json", 1),
    ("train_draft", "open", "*ckpt-facts.json*", 7),
    ("rewrite_model", "open", "*model.cmf.partial", 1),
    ("measure_draft", "open", "*/hit/c/*", 2),
    ("measure_draft", "open", "*record.json", 1),
    ("report", "open", "*report.html*", 1),
]


def ballast(lab: Lab) -> Path:
    return lab.store.parent / "ballast"


@pytest.mark.parametrize(("stage", "event", "pattern", "nth"), PLACES)
def test_a_disk_that_fills_up_in_a_stage(
    uncut: Lab, small_lab: Lab, stage: str, event: str, pattern: str, nth: int
) -> None:
    lab = small_lab
    lab.drop(stage)
    if stage == "trunk_shard":
        lab.drop("trunk_pass")  # it would refer to shards that are gone
    fault = Fault("fill", event, pattern, nth, lab.store.parent)  # type: ignore[arg-type]
    run = lab.start(fault)
    assert run.code() == 1, run.said
    assert f"{lab.store}: no space is left for stage {stage}; free some or choose " in (
        run.error
    )
    assert lab.contents().items() <= uncut.contents().items()
    ballast(lab).unlink()  # there it was
    resumed = lab.finish()
    assert lab.contents() == uncut.contents()
    if stage == "train_draft":  # the checkpoint before was kept
        assert resumed.states(stage) == ["resumed"]
    if stage == "trunk_shard":  # as were the shards before
        assert resumed.states(stage)[0] == "cached"


def test_a_fresh_draft_on_a_full_disk(small_lab: Lab, tmp_path: Path) -> None:
    """Its tensors are written by safetensors, which has errors of its own."""
    bare = tiny_qwen3(TinySpec(vocab=VOCAB, draft=None))
    student = write_model(tmp_path / "bare.cmf", bare)
    change = ("--set", f"student={student}", "--set", "start_from_last_layer=true")
    fault = Fault("fill", "open", "*/locks/start_draft/*", 1, small_lab.store.parent)
    arguments = ("run", str(small_lab.config), *small_lab.options, *change)
    run = small_lab.start(fault, arguments)
    assert run.code() == 1, run.said
    assert "no space is left for stage start_draft" in run.error
    ballast(small_lab).unlink()
    assert small_lab.start(None, arguments).code() == 0


def test_the_demonstrations_stages_on_a_full_disk(small: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("A cat sees a tree. " * 200)
    write_gguf(tmp_path / "tiny.gguf")
    runtime = Runtime(store=Store(small / "store"))
    text = open_set(str(tmp_path / "text.txt"), runtime.store.digests)
    source = ForeignFile(tmp_path / "tiny.gguf", "0" * 64)
    learning = TokenizerSettings(vocab=300, bytes_a_set=4000)
    fill_disk(small)
    for _ in range(2):
        with pytest.raises(DiskFull, match="no space is left for stage train_tokenizer"):
            train_tokenizer(learning, runtime, sets=[text])
        with pytest.raises(DiskFull, match="no space is left for stage import_gguf"):
            import_gguf(ImportSettings(), runtime, source=source)
    (small / "ballast").unlink()
    assert train_tokenizer(learning, runtime, sets=[text]).numbers["vocab"] > 256
    assert import_gguf(ImportSettings(), runtime, source=source).numbers["bytes"] > 0


def test_half_a_stage_does_not_stay_on_the_full_disk(small_lab: Lab) -> None:
    small_lab.drop("trunk_shard")
    disk = small_lab.store.parent
    run = small_lab.start(Fault("fill", "open", "*/hidden/c/*", 4, disk))
    assert run.code() == 1
    assert list(small_lab.store.glob("trunk_shard/*/hidden")) == []


@pytest.mark.parametrize(
    ("stage", "who"),
    [
        ("trunk_shard", "the trunk pass"),
        ("train_draft", "stage train_draft"),
        ("rewrite_model", "stage rewrite_model"),
        ("measure_draft", "stage measure_draft"),
    ],
)
def test_a_stage_that_will_not_fit_is_not_begun(
    small_lab: Lab, stage: str, who: str
) -> None:
    small_lab.drop(stage)
    fill_disk(small_lab.store.parent, leaving=3 << 12)
    run = small_lab.start()
    assert run.code() == 1, run.said
    assert f"{small_lab.store}: {who} needs about " in run.error
    assert " kB are free on that disk; free some or choose another store with --store" in (
        run.error
    )
    kept = [p for p in small_lab.store.glob(f"{stage}/*/*") if p.name != "work"]
    assert kept == []


def test_the_room_a_stage_asks_for_is_about_what_it_takes(uncut: Lab) -> None:
    """Rows are 32·4 + 8·(4 + 4) + 4 bytes at most, 50 windows of 32 of them."""
    files = [p for p in (uncut.store / "trunk_shard").rglob("c/**/*") if p.is_file()]
    taken = sum(path.stat().st_size for path in files)
    bound = 50 * 32 * (32 * 4 + 8 * 8 + 4)
    assert 0.5 * bound < taken <= bound


def test_no_room_for_an_output(uncut: Lab, lab: Lab, small: Path) -> None:
    there = replace(lab, root=small)
    there.out.parent.mkdir()
    there.out.write_bytes(b"CMF\x01 that was there before")
    fill_disk(small, leaving=5 << 12)
    run = lab.start(arguments=("run", str(lab.config), *there.options))
    assert run.code() == 2, run.said
    assert f"{there.out} could not be written (it takes " in run.error
    assert "the result is kept in the store as" in run.error
    assert there.out.read_bytes() == b"CMF\x01 that was there before"
    assert [path.name for path in there.out.parent.iterdir()] == ["healed.cmf"]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A small disk with nothing on it."""
    with small_disk(tmp_path / "small disk") as disk:
        yield disk


def test_the_disk_fills_up_while_an_output_is_copied(lab: Lab, small: Path) -> None:
    there = replace(lab, root=small)
    fault = Fault("fill", "open", "*healed.cmf.partial", 1, small)
    run = lab.start(fault, ("run", str(lab.config), *there.options))
    assert run.code() == 2, run.said
    assert "could not be written (No space left on device)" in run.error
    assert list(there.out.parent.iterdir()) == []


def test_a_fold_on_a_full_disk(small_lab: Lab, files: Ground) -> None:
    out = small_lab.root / "folded.cmf"
    fault = Fault("fill", "open", "*/model.cmf.partial", 1, small_lab.store.parent)
    command = ("fold", str(files.student), str(out), "--drop", "1")
    arguments = (*command, "--store", str(small_lab.store))
    run = small_lab.start(fault, arguments)
    assert run.code() == 1, run.said
    assert "no space is left for stage fold_model" in run.error
    ballast(small_lab).unlink()
    assert small_lab.start(None, arguments).code() == 0
    assert out.stat().st_size > 0


@pytest.mark.parametrize("action", ["kill", "fill"])
def test_what_cmf_writes_is_whole_or_not_there(
    lab: Lab, files: Ground, small: Path, action: str
) -> None:
    out = small / "table.bin"
    out.write_bytes(b"old")
    name = "model.embed_tokens.weight"
    command = ("dump", str(files.student), name, str(out))
    event = "os.rename" if action == "kill" else "open"
    pattern = str(out) if action == "kill" else f"{out}.partial"
    fault = Fault(action, event, pattern, 1, small)  # type: ignore[arg-type]
    run = lab.start(fault, command, "cmf")
    assert run.code() == (-9 if action == "kill" else 1), run.said
    assert out.read_bytes() == b"old"
    (small / "ballast").unlink(missing_ok=True)
    assert lab.start(None, command, "cmf").code() == 0
    assert len(out.read_bytes()) >= 300 * 32 * np.dtype("<f2").itemsize
    assert [path.name for path in small.iterdir()] == ["table.bin"]


def test_a_finished_heal_on_a_read_only_disk_is_found(uncut: Lab, small_lab: Lab) -> None:
    read_only(small_lab)
    there = replace(uncut, store=small_lab.store)  # the output is in the report's key
    healed = uncut.out.read_bytes()
    uncut.out.unlink()
    run = small_lab.start(arguments=("run", str(uncut.config), *there.options))
    assert run.code() == 0, run.said
    assert "were cached: nothing had to run" in run.said
    assert uncut.out.read_bytes() == healed


def test_an_unfinished_heal_on_a_read_only_disk_says_so(small_lab: Lab) -> None:
    small_lab.drop("train_draft")
    read_only(small_lab)
    run = small_lab.start()
    assert run.code() == 1, run.said
    assert f"{small_lab.store}: stage train_draft must be written and the store is " in (
        run.error
    )
    assert "make it writable or choose another with --store" in run.error


def read_only(lab: Lab) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(lab.store.parent)], check=True)
