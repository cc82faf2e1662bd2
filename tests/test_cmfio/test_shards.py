"""Models in several files: where they are cut, and that nothing half appears."""

import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cmfio.convert import convert
from cmfio.errors import CmfError, DamagedTensor, FileNotFound, SameFile
from cmfio.layout import write_file
from cmfio.reader import open_container
from cmfio.rewrite import copy_tensor, rewrite
from cmfio.shards import shard_header
from cmfio.verify import verify
from cmfio.writer import Output, write_model

PEERS = Path(__file__).parents[1] / "peers" / "cmf"
FIRST = PEERS / "shards" / "tiny-00001-of-00003.cmf"


def peers_shard(number: int) -> bytes:
    return (PEERS / "shards" / f"tiny-{number:05}-of-00003.cmf").read_bytes()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def reshard(source: Path, out: Path, most: int) -> list[Path]:
    with open_container(source) as container:
        return rewrite(container, out, {}, output=Output(shard_max_bytes=most))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_shard_of_the_same_tensors_is_the_peers(number: int, tmp_path: Path) -> None:
    with open_container(FIRST) as source, (tmp_path / "out.cmf").open("w+b") as file:
        own = [n for n, entry in source.entries.items() if entry.shard == number - 1]
        header = shard_header(source.header, number, 3)
        sections = source.files[0].trailing() if number == 1 else {}
        payloads = [copy_tensor(source, name) for name in own]
        write_file(file, header, payloads, sections, lambda: None)
    assert (tmp_path / "out.cmf").read_bytes() == peers_shard(number)


def test_a_file_is_filled_up_to_the_last_byte(tmp_path: Path) -> None:
    size = len(peers_shard(1))
    exact = reshard(FIRST, tmp_path / "a.cmf", size)
    assert exact[0].read_bytes() == peers_shard(1)
    assert len(reshard(FIRST, tmp_path / "b.cmf", size - 1)[0].read_bytes()) < size


@pytest.mark.parametrize("most", [9_000, 16_000, 30_000, 51_549])
def test_no_file_is_larger_and_all_come_together_again(most: int, tmp_path: Path) -> None:
    paths = reshard(PEERS / "full.cmf", tmp_path / "m.cmf", most)
    count = len(paths)
    assert all(path.stat().st_size <= most for path in paths)
    assert (count == 1) == (most == 51_549)  # the file's own size
    expected = [f"m-{n:05}-of-{count:05}.cmf" for n in range(1, count + 1)]
    assert names(tmp_path) == (expected if count > 1 else ["m.cmf"])
    with open_container(paths[0]) as cut:
        assert verify(cut) == []
        rewrite(cut, tmp_path / "whole.cmf", {})
    assert (tmp_path / "whole.cmf").read_bytes() == (PEERS / "full.cmf").read_bytes()


def test_what_doesnt_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(CmfError, match=r"a shard can't be as small as 6,000 bytes"):
        reshard(PEERS / "full.cmf", tmp_path / "m.cmf", 6_000)
    assert names(tmp_path) == []


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    with open_container(PEERS / "align.cmf") as source:
        one = copy_tensor(source, "b.big")
        many = [replace(one, name=f"t{i}") for i in range(600)]
        output = Output(shard_max_bytes=24_000)
        with pytest.raises(CmfError, match="600 files; make at most 500"):
            write_model(tmp_path / "m.cmf", source.header, many, {}, output)
    assert names(tmp_path) == []


@pytest.mark.parametrize("codec", ["vbit_ro", "q1s"])
def test_codecs_whose_size_only_weights_tell_are_cut_as_exactly(
    codec: str, tmp_path: Path
) -> None:
    with open_container(PEERS / "full.cmf") as source:
        convert(source, tmp_path / "whole.cmf", codec)
        output = Output(shard_max_bytes=20_000)
        paths = convert(source, tmp_path / "cut.cmf", codec, output=output)
    assert max(path.stat().st_size for path in paths) <= 20_000
    with (
        open_container(tmp_path / "whole.cmf") as whole,
        open_container(paths[0]) as cut,
    ):
        assert list(cut.entries) == list(whole.entries)
        assert all(cut.payload(name) == whole.payload(name) for name in whole.entries)


def test_no_shard_takes_the_place_of_the_source(tmp_path: Path) -> None:
    source = tmp_path / "m-00002-of-00002.cmf"
    source.write_bytes((PEERS / "full.cmf").read_bytes())
    with pytest.raises(SameFile):
        reshard(source, tmp_path / "m.cmf", 30_000)
    assert source.read_bytes() == (PEERS / "full.cmf").read_bytes()


def test_damage_met_on_the_way_leaves_the_older_model(tmp_path: Path) -> None:
    damaged = bytearray((PEERS / "full.cmf").read_bytes())
    data = struct.unpack_from("<Q", damaged, 0x30)[0]
    with open_container(PEERS / "full.cmf") as source:
        last = list(source.entries.values())[-1]
    damaged[data + last.offset] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    paths = reshard(PEERS / "full.cmf", tmp_path / "m.cmf", 30_000)
    before = {path: path.read_bytes() for path in paths}
    with pytest.raises(DamagedTensor):
        reshard(tmp_path / "damaged", tmp_path / "m.cmf", 30_000)
    assert {path: path.read_bytes() for path in paths} == before
    assert names(tmp_path) == ["damaged", *[path.name for path in paths]]


def test_the_first_shard_gets_its_name_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real = os.replace

    def seen(source: Path, target: Path) -> None:
        order.append(Path(target).name)
        real(source, target)

    reshard(PEERS / "full.cmf", tmp_path / "m.cmf", 16_000)
    monkeypatch.setattr(Path, "replace", seen)
    paths = reshard(PEERS / "full.cmf", tmp_path / "m.cmf", 16_000)
    assert order == [path.name for path in reversed(paths)]


def test_leftovers_of_any_earlier_cut_are_cleaned_and_nothing_else(tmp_path: Path) -> None:
    left = ["m.cmf.partial", "m-00001-of-00007.cmf.partial", "m-00006-of-00007.cmf.partial"]
    named = ["m-00007-of-00007.cmf"]  # its first shard was never named
    kept = ["m-00002-of-00009.cmf", "m2.cmf.partial", "other-00001-of-00007.cmf.partial"]
    for name in (*left, *named, *kept):
        (tmp_path / name).write_bytes(b"x")
    paths = reshard(PEERS / "full.cmf", tmp_path / "m.cmf", 30_000)
    assert names(tmp_path) == sorted([*kept, *[path.name for path in paths]])


def test_verify_names_what_is_damaged_in_every_shard(tmp_path: Path) -> None:
    paths = reshard(PEERS / "full.cmf", tmp_path / "m.cmf", 16_000)
    hurt: list[str] = []
    for path in paths:
        data = bytearray(path.read_bytes())
        start, length = struct.unpack_from("<QQ", data, 0x30)
        data[start] ^= 1  # its first tensor
        data[0x70] ^= 1  # the recorded hash of its header
        path.write_bytes(data)
        with open_container(paths[0]) as model:
            own = model.files[paths.index(path)]
            hurt += [f"{path}: section 'header'", f"{path}: tensor {own.entries[0].name!r}"]
        assert length
    with open_container(paths[0]) as model:
        found = [line.partition(": hash mismatch")[0] for line in verify(model)]
    assert sorted(found) == sorted(hurt)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    paths = reshard(PEERS / "full.cmf", tmp_path / "m.cmf", 16_000)
    paths[1].unlink()
    with pytest.raises(FileNotFound, match=paths[1].name):
        open_container(paths[0])


def test_new_values_are_cut_like_old_ones(tmp_path: Path) -> None:
    weight = np.ones((128, 64), np.float32)
    with open_container(PEERS / "full.cmf") as source:
        paths = rewrite(
            source,
            tmp_path / "m.cmf",
            {"new": weight},
            output=Output(shard_max_bytes=30_000),
        )
    with open_container(paths[0]) as model:
        np.testing.assert_array_equal(model.tensor("new"), weight)
