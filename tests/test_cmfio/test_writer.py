"""The writer: the peer's layout byte for byte; a file appears whole or not at all."""

import fcntl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cmfio.errors import BoundsError, CmfError, CmfIoError, DamagedTensor, ParseError
from cmfio.reader import open_container
from cmfio.rewrite import copy_tensor, encode_later, encode_tensor, rewrite
from cmfio.writer import write_container

PEERS = Path(__file__).parents[1] / "peers" / "cmf"


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize(
    "name", ["full", "align", "nd", "loop_masks", "moe_masks", "skill_file", "dtypes_48x96"]
)
def test_an_unchanged_rewrite_is_the_peers_file(name: str, tmp_path: Path) -> None:
    with open_container(PEERS / f"{name}.cmf") as container:
        rewrite(container, tmp_path / "out.cmf", {})
    assert (tmp_path / "out.cmf").read_bytes() == (PEERS / f"{name}.cmf").read_bytes()


@pytest.mark.parametrize("name", ["stream_gap1", "stream_gap10000"])
def test_a_streamed_file_comes_out_in_the_ordinary_layout(
    name: str, tmp_path: Path
) -> None:
    with open_container(PEERS / f"{name}.cmf") as container:
        rewrite(container, tmp_path / "out.cmf", {})
    assert (tmp_path / "out.cmf").read_bytes() == (PEERS / "align.cmf").read_bytes()


def test_shards_come_out_as_one_file(tmp_path: Path) -> None:
    with open_container(PEERS / "shards" / "tiny-00001-of-00003.cmf") as sharded:
        rewrite(sharded, tmp_path / "out.cmf", {})
        with open_container(tmp_path / "out.cmf") as merged:
            assert merged.header.shard is None
            assert list(merged.entries) == list(sharded.entries)
            for name in sharded.entries:
                assert merged.payload(name) == sharded.payload(name), name
            assert merged.masks == sharded.masks


def test_a_model_without_tensors_is_padded_to_its_data(tmp_path: Path) -> None:
    with open_container(PEERS / "align.cmf") as source:
        write_container(tmp_path / "none.cmf", source.header, [])
    assert (tmp_path / "none.cmf").stat().st_size == 4096
    with open_container(tmp_path / "none.cmf") as empty:
        assert empty.header.section_hashes is None
        assert dict(empty.entries) == {}


def fail_on(kind: str, source_path: Path, out: Path) -> None:
    ones = np.ones((4, 32), np.float32)
    with open_container(source_path) as source:
        good = encode_tensor("w", ones, "f16")
        copied = copy_tensor(source, "b.big")
        bad = {
            "stands twice": [good, good],
            "bytes came": [replace(good, data=b"123")],
            "takes 256 bytes": [replace(good, nbytes=10)],
            "has hash": [good, replace(copied, hash64=1)],
            "too long": [encode_tensor("n" * 70_000, ones, "f32")],
            "dimensions": [encode_tensor("w", np.ones((1,) * 7, np.float32), "f32")],
            "announced": [encode_later("w", (4, 32), "f16", lambda: ones[:2])],
        }[kind]
        write_container(out, source.header, bad)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("stands twice", ParseError),
        ("bytes came", BoundsError),
        ("takes 256 bytes", BoundsError),
        ("has hash", DamagedTensor),
        ("too long", ParseError),
        ("dimensions", ParseError),
        ("announced", CmfError),
    ],
)
def test_a_refused_write_leaves_the_old_file_and_nothing_else(
    kind: str, error: type[CmfError], tmp_path: Path
) -> None:
    out = tmp_path / "out.cmf"
    out.write_bytes(b"old")
    with pytest.raises(error, match=kind):
        fail_on(kind, PEERS / "align.cmf", out)
    assert out.read_bytes() == b"old"
    assert names(tmp_path) == ["out.cmf"]


def stop_midway(tmp_path: Path, out: Path) -> None:
    def interrupted() -> np.ndarray:
        assert (tmp_path / "out.cmf.partial").exists()
        raise KeyboardInterrupt

    with open_container(PEERS / "align.cmf") as source:
        write_container(
            out, source.header, [encode_later("w", (4, 32), "f16", interrupted)]
        )


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        stop_midway(tmp_path, tmp_path / "out.cmf")
    assert names(tmp_path) == []


def write_align(out: Path) -> None:
    with open_container(PEERS / "align.cmf") as source:
        rewrite(source, out, {})


def test_leftovers_of_a_killed_writer_are_cleaned_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "out.cmf.partial").write_bytes(b"x" * 100_000)
    write_align(tmp_path / "out.cmf")
    assert names(tmp_path) == ["out.cmf"]
    assert (tmp_path / "out.cmf").read_bytes() == (PEERS / "align.cmf").read_bytes()


def test_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    partial = tmp_path / "out.cmf.partial"
    with partial.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(b"half")
        other.flush()
        with pytest.raises(CmfIoError, match="another program is writing"):
            write_align(tmp_path / "out.cmf")
    assert partial.read_bytes() == b"half"


def into_nowhere(folder: Path) -> Path:
    return folder / "missing" / "out.cmf"


def into_a_folder(folder: Path) -> Path:
    (folder / "out.cmf").mkdir()
    return folder / "out.cmf"


def through_a_planted_link(folder: Path) -> Path:
    (folder / "precious").write_bytes(b"precious")
    (folder / "out.cmf.partial").symlink_to(folder / "precious")
    return folder / "out.cmf"


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (into_nowhere, "there is no folder"),
        (into_a_folder, "is a folder"),
        (through_a_planted_link, "is in the way"),
    ],
)
def test_where_nothing_can_be_written_is_an_io_error(
    place: Callable[[Path], Path], text: str, tmp_path: Path
) -> None:
    with pytest.raises(CmfIoError, match=text):
        write_align(place(tmp_path))
    if (tmp_path / "precious").exists():
        assert (tmp_path / "precious").read_bytes() == b"precious"
