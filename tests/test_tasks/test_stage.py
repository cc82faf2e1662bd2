import errno
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from store.errors import ArtifactError, DiskFull, NotJson
from store.store import Store
from tasks.errors import InputError
from tasks.stage import Ledger, Runtime, mark_resumed, stage
from tests.test_tasks.sample_stages import (
    RAN,
    DataFile,
    Text,
    anew,
    said,
    states,
    write_text,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    RAN.clear()
    return Runtime(store=Store(tmp_path / "store"))


def test_the_second_call_is_cached(runtime: Runtime) -> None:
    first = write_text(Text(text="hello"), runtime)
    again = write_text(Text(text="hello"), anew(runtime))
    assert again == first
    assert RAN == ["hello"]
    assert first.numbers == {"letters": 5}
    assert sorted(p.name for p in first.path.iterdir()) == [
        "manifest.json",
        "record.json",
        "text",
    ]


def test_the_ledger_lists_calls_in_order(runtime: Runtime) -> None:
    a = write_text(Text(text="a"), runtime, label="first")
    write_text(Text(text="b"), runtime)
    write_text(Text(text="a"), runtime)
    listed = runtime.ledger.listing()
    assert [(e["name"], e["state"]) for e in listed] == [
        ("write_text", "ran"),
        ("write_text", "ran"),
        ("write_text", "cached"),
    ]
    assert listed[0]["key"] == listed[2]["key"] == a.key
    assert runtime.ledger.events[0].label == "first"
    assert runtime.ledger.events[2].seconds < 0.25  # about 1 ms on an idle machine


def test_the_key_holds_settings_and_inputs_only(runtime: Runtime) -> None:
    key = write_text(Text(), runtime).key
    other = replace(runtime, device="cuda", threads=7, head_budget_bytes=1)
    assert write_text(Text(), other, label="x").key == key
    assert write_text(Text(text="b"), runtime).key != key
    assert write_text(Text(), runtime, data=DataFile("d1")).key != key
    newer = replace(write_text, version=2)
    assert newer(Text(), runtime).key != key


def test_the_order_of_inputs_is_content(runtime: Runtime) -> None:
    @stage("order", version=1)
    def order(out: Path, settings: Text, runtime: Runtime, **inputs: object) -> None:
        RAN.append("order")

    a, b = DataFile("d1"), DataFile("d2")
    given = ([a, b], [b, a], {"x": a, "y": b}, {"y": b, "x": a}, {"x": b, "y": a}, None)
    keys = {order(Text(), runtime, sets=sets).key for sets in given}
    assert len(keys) == 6


def test_an_input_without_a_digest_is_refused(runtime: Runtime, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"input data is a \w*Path without"):
        write_text(Text(), runtime, data=tmp_path)  # type: ignore[arg-type]  # the mistake


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_fill_is_never_an_input(
    runtime: Runtime, error: type[BaseException]
) -> None:
    @stage("train", version=1)
    def train(out: Path, settings: Text, runtime: Runtime) -> None:
        checkpoint = out / "work" / "ckpt-1"
        if checkpoint.exists():
            mark_resumed(out)
            assert not (out / "half").exists()
            (out / "whole").write_text(checkpoint.read_text())
            return
        checkpoint.parent.mkdir(exist_ok=True)
        checkpoint.write_text("state")
        (out / "half").write_text("x")
        raise error("cut")

    with pytest.raises(error, match="cut"):
        train(Text(), runtime)
    assert runtime.ledger.events == []
    assert list(runtime.store.artifacts()) == []
    made = train(Text(), runtime)
    assert states(runtime) == ["resumed"]
    assert sorted(made.manifest.files) == ["whole"]
    assert not (made.path / "work").exists()
    assert "an earlier run broke off" in said(runtime)
    train(Text(), runtime)
    assert states(runtime) == ["resumed", "cached"]


def test_numbers_that_are_no_json_are_an_error_each_time(runtime: Runtime) -> None:
    @stage("measure", version=1)
    def measure(out: Path, settings: Text, runtime: Runtime) -> Mapping[str, object]:
        return {"loss": np.float32(1)}

    for _ in range(2):
        with pytest.raises(NotJson, match=r"numbers\.loss is a numpy\.float32"):
            measure(Text(), runtime)
    assert list(runtime.store.artifacts()) == []
    # Nothing was there to resume: no empty folder is left to wonder at.
    assert not list(runtime.store.root.glob("measure/*/"))


def test_what_was_refused_did_not_break_off(runtime: Runtime) -> None:
    @stage("pack", version=1)
    def pack(out: Path, settings: Text, runtime: Runtime) -> None:
        with runtime.progress.task("packing", total=2) as bar:
            bar.advance()
            raise InputError("data: is empty; give more")

    for _ in range(2):
        with pytest.raises(InputError, match="give more"):
            pack(Text(), runtime)
    assert "broke off" not in said(runtime)
    assert not list(runtime.store.root.glob("pack/*/"))


def test_a_full_disk_is_one_sentence(runtime: Runtime) -> None:
    @stage("fill_disk", version=1)
    def fill_disk(out: Path, settings: Text, runtime: Runtime) -> None:
        Path("/dev/full").write_bytes(b"x")

    with pytest.raises(DiskFull, match="no space is left for stage fill_disk"):
        fill_disk(Text(), runtime)


def test_a_disk_that_fills_at_the_very_end_leaves_no_record(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(self: object, path: str, content: bytes, **_: object) -> str:
        (runtime.store.root / path).write_bytes(content[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("prefect.filesystems.LocalFileSystem.write_path", half)
        with pytest.raises(DiskFull):
            write_text(Text(), runtime)
    assert list(runtime.store.root.rglob("record.json")) == []
    write_text(Text(), runtime)
    assert states(runtime) == ["ran"]


def test_a_store_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtifactError, match="a file lies where the store needs a"):
        write_text(Text(), Runtime(store=Store(tmp_path / "file" / "store")))


def test_onlookers_can_read_how_far_a_stage_is(runtime: Runtime) -> None:
    @stage("count", version=1)
    def count(out: Path, settings: Text, runtime: Runtime) -> Mapping[str, object]:
        progress = replace(runtime.progress, every_s=0)  # type: ignore[type-var]  # FiledProgress
        with progress.task("counting", total=2, unit="steps") as bar:
            bar.advance(1, loss=0.5)
        return {"seen": (out / "work" / "progress.json").read_text()}

    seen = str(count(Text(), runtime).numbers["seen"])
    assert '"done": 1, "total": 2' in seen


def test_a_cached_call_needs_neither_prefect_nor_torch(runtime: Runtime) -> None:
    write_text(Text(), runtime)
    program = (
        "import sys\n"
        "from tests.test_tasks.sample_stages import *\n"
        f"runtime = Runtime(store=Store(Path({str(runtime.store.root)!r})))\n"
        "write_text(Text(), runtime)\n"
        "print(states(runtime))\n"
        "print({'torch', 'prefect', 'zarr', 'transformers'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert done.stdout == "['cached']\nset()\n"


def test_ledgers_of_two_runs_are_apart(runtime: Runtime) -> None:
    other = replace(runtime, ledger=Ledger())
    write_text(Text(), runtime)
    write_text(Text(), other)
    assert (states(runtime), states(other)) == (["ran"], ["cached"])
