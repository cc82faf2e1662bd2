"""A heal as a file: what comes out goes in, and nothing else does."""

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from store.bundle import INDEX, export
from store.errors import ArtifactError, BadBundle
from store.store import Store
from store.unbundle import take_in
from store.upkeep import items
from tasks.stage import Runtime
from tests.test_tasks.sample_stages import Text, anew, harm, join_text, states, write_text


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    """Two texts and a join of the first."""
    runtime = Runtime(store=Store(tmp_path / "store"))
    first = write_text(Text(text="one"), runtime)
    write_text(Text(text="two"), runtime)
    join_text(Text(), runtime, shards=[first])
    return runtime


def exported(runtime: Runtime, out: Path) -> Path:
    export(runtime.store, "join_text", out)
    return out


def test_the_lineage_goes_along_and_is_found(runtime: Runtime, tmp_path: Path) -> None:
    bundle = exported(runtime, tmp_path / "join.tar")
    other = Runtime(store=Store(tmp_path / "other"))
    taken = take_in(other.store, bundle)
    assert [name.split("/")[0] for name in taken.new] == ["write_text", "join_text"]
    first = write_text(Text(text="one"), other)
    join_text(Text(), other, shards=[first])
    assert states(other) == ["cached", "cached"]
    assert take_in(other.store, bundle).new == ()
    assert not list((other.store.root / "incoming").iterdir())


def test_equal_artifacts_give_equal_bytes_and_tar_reads_them(
    runtime: Runtime, tmp_path: Path
) -> None:
    one = exported(runtime, tmp_path / "one.tar")
    two = exported(anew(runtime), tmp_path / "two.tar")
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as tar:
        names = tar.getnames()
        assert names[0] == INDEX
        assert [name.endswith("/record.json") for name in names[-2:]] == [True, True]
        listed = json.load(tar.extractfile(INDEX) or io.BytesIO())["members"]
        for member in listed:
            data = (tar.extractfile(member["name"]) or io.BytesIO()).read()
            assert hashlib.sha256(data).hexdigest() == member["sha256"]


def test_what_is_damaged_is_not_exported(runtime: Runtime, tmp_path: Path) -> None:
    (text,) = runtime.store.path(*items(runtime.store)[1].name.split("/")).glob("text")
    for path in runtime.store.root.glob("write_text/*/text"):
        harm(path, b"0ne", keep_time=True)
    assert text.exists()
    with pytest.raises(ArtifactError, match="its bytes changed"):
        exported(runtime, tmp_path / "join.tar")
    assert not (tmp_path / "join.tar").exists()


Member = tuple[tarfile.TarInfo, bytes]
Change = Callable[[list[Member]], object]


def rewritten(bundle: Path, change: Change) -> Path:
    with tarfile.open(bundle) as tar:
        found = [(i, (tar.extractfile(i) or io.BytesIO()).read()) for i in tar]
    change(found)
    with tarfile.open(bundle, "w", format=tarfile.GNU_FORMAT) as tar:
        for info, data in found:
            tar.addfile(info, io.BytesIO(data))
        end = tar.offset
    with bundle.open("r+b") as file:  # tarfile fills up to 10 KiB, which is refused
        file.truncate(end + 2 * 512)
    return bundle


def renamed(name: str) -> Change:
    """The second member under another name, in header and index alike."""

    def change(found: list[Member]) -> None:
        info, _ = found[1]
        head, index = found[0]
        data = index.replace(json.dumps(info.name).encode(), json.dumps(name).encode())
        head.size = len(data)
        found[0] = (head, data)
        info.name = name

    return change


def typed(kind: bytes) -> Change:
    def change(found: list[Member]) -> None:
        found[1][0].type, found[1][0].linkname = kind, "/etc/passwd"

    return change


def spoiled(found: list[Member]) -> None:
    info, data = found[2]
    found[2] = (info, bytes([data[0] ^ 1]) + data[1:])


HOSTILE: dict[str, Change] = {
    "dots": renamed("../../out"),
    "inner dots": renamed("write_text/../../out"),
    "absolute": renamed("/tmp/out"),
    "nul": renamed("write_text/\0out"),
    "own folder": renamed("locks/gate"),
    "runs": renamed("runs/../x/run.json"),
    "symlink": typed(tarfile.SYMTYPE),
    "hard link": typed(tarfile.LNKTYPE),
    "device": typed(tarfile.CHRTYPE),
    "fifo": typed(tarfile.FIFOTYPE),
    "a changed byte": spoiled,
    "a member too few": lambda found: found.pop(),
    "a member too many": lambda found: found.append((tarfile.TarInfo("more"), b"")),
    "a member twice": lambda found: found.insert(1, found[1]),
    "no index": lambda found: found.pop(0),
    "another order": lambda found: found.insert(1, found.pop()),
}


def test_what_was_only_rewritten_is_taken_in(runtime: Runtime, tmp_path: Path) -> None:
    bundle = rewritten(exported(runtime, tmp_path / "join.tar"), lambda _: None)
    assert len(take_in(Store(tmp_path / "other"), bundle).new) == 2


@pytest.mark.parametrize("way", list(HOSTILE))
def test_a_hostile_tar_changes_nothing(runtime: Runtime, tmp_path: Path, way: str) -> None:
    bundle = rewritten(exported(runtime, tmp_path / "join.tar"), HOSTILE[way])
    other = Store(tmp_path / "deep" / "other")
    with pytest.raises(BadBundle, match="nothing was imported"):
        take_in(other, bundle)
    assert items(other) == []
    left = [p for p in (tmp_path / "deep").rglob("*") if not p.is_dir()]
    assert left == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("end", [0, 1, 511, 700, 2000, -600])
def test_a_cut_tar_changes_nothing(runtime: Runtime, tmp_path: Path, end: int) -> None:
    bundle = exported(runtime, tmp_path / "join.tar")
    bundle.write_bytes(bundle.read_bytes()[: end - 1024 if end < 0 else end])
    with pytest.raises(BadBundle):
        take_in(Store(tmp_path / "other"), bundle)
    assert items(Store(tmp_path / "other")) == []


def test_a_sound_checksum_does_not_make_a_false_artifact_true(
    runtime: Runtime, tmp_path: Path
) -> None:
    """The index agrees with the bytes, but the manifest says what its key does not."""

    def change(found: list[Member]) -> None:
        place = next(i for i, m in enumerate(found) if m[0].name.endswith("manifest.json"))
        info, data = found[place]
        forged = data.replace(b'"version": 1', b'"version": 9')
        assert forged != data
        head, index = found[0]
        old, new = (hashlib.sha256(one).hexdigest().encode() for one in (data, forged))
        found[0] = (head, index.replace(old, new))
        found[place] = (info, forged)

    bundle = rewritten(exported(runtime, tmp_path / "join.tar"), change)
    with pytest.raises(BadBundle, match="the manifest is not the one its record closes"):
        take_in(Store(tmp_path / "other"), bundle)
