"""Damage to finished artifacts: found before use, said, mended."""

import shutil
import subprocess
from pathlib import Path

import pytest

from store.errors import ArtifactDamaged
from store.store import Store
from tasks.stage import Runtime, stage
from tests.test_tasks.sample_stages import (
    RAN,
    Text,
    anew,
    harm,
    join_text,
    read_text,
    said,
    states,
    write_text,
)


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    RAN.clear()
    return Runtime(store=Store(tmp_path / "store"))


@pytest.mark.parametrize("way", ["gone", "cut", "flipped", "zeroed", "manifest", "record"])
def test_damage_is_found_said_and_mended(runtime: Runtime, way: str) -> None:
    made = write_text(Text(text="hello"), runtime)
    file = made.path / "text"
    if way == "gone":
        file.unlink()
    elif way in {"manifest", "record"}:
        harm(made.path / f"{way}.json")
    else:
        harm(file, {"cut": b"hel", "flipped": b"hellO", "zeroed": None}[way])
    later = anew(runtime)
    mended = write_text(Text(text="hello"), later)
    assert RAN == ["hello", "hello"]
    assert states(later) == ["ran"]
    assert "write_text: damaged, set aside and made again: " in said(later)
    assert (mended.path / "text").read_text() == "hello"
    assert (runtime.store.root / "damaged" / f"write_text-{made.key}-1").is_dir()


@pytest.mark.parametrize("way", ["move", "copy"])
def test_a_moved_store_still_hits(runtime: Runtime, tmp_path: Path, way: str) -> None:
    whole = join_text(Text(), runtime, shards=[write_text(Text(), runtime)])
    if way == "move":
        runtime.store.root.rename(tmp_path / "there")
    else:
        subprocess.run(["cp", "-r", runtime.store.root, tmp_path / "there"], check=True)
        shutil.rmtree(runtime.store.root)
    there = Runtime(store=Store(tmp_path / "there"))
    again = join_text(Text(), there, shards=[write_text(Text(), there)])
    assert states(there) == ["cached", "cached"]
    assert again.content_digest == whole.content_digest
    assert again.path.is_relative_to(tmp_path / "there")


def test_a_damaged_input_is_made_again_before_use(runtime: Runtime) -> None:
    made = write_text(Text(text="hello"), runtime)
    harm(made.path / "text", keep_time=True)  # sizes and times show nothing
    later = anew(runtime)
    read_text(Text(), later, whole=made)
    assert RAN == ["hello", "hello", "read hello"]
    assert states(later) == ["ran"]
    assert "write_text: damaged" in said(later)


def test_a_damaged_part_of_an_input_is_made_again(runtime: Runtime) -> None:
    shards = [write_text(Text(text=t), runtime) for t in "abc"]
    whole = join_text(Text(), runtime, shards=shards)
    harm(shards[1].path / "text", keep_time=True)
    read_text(Text(), anew(runtime), whole=whole)
    # The join itself was sound: once its part is back it is a hit.
    assert RAN == ["a", "b", "c", "join", "b", "read abc"]


def test_a_damaged_part_spoils_the_hit_of_the_whole(runtime: Runtime) -> None:
    shards = [write_text(Text(text=t), runtime) for t in "ab"]
    join_text(Text(), runtime, shards=shards)
    (shards[0].path / "text").unlink()
    whole = join_text(Text(), runtime, shards=shards)
    assert runtime.store.deep_check(whole) == []
    assert RAN == ["a", "b", "join", "a"]


def test_an_input_that_comes_back_different_changes_the_key(runtime: Runtime) -> None:
    @stage("draw", version=1)
    def draw(out: Path, settings: Text, runtime: Runtime) -> None:
        RAN.append("draw")
        (out / "text").write_text(f"{len(RAN)}")

    made = draw(Text(), runtime)
    harm(made.path / "text")
    read = read_text(Text(), runtime, whole=made)
    assert RAN == ["draw", "draw", "read 2"]
    assert read.manifest.inputs["whole"] == draw(Text(), runtime).content_digest


def test_damage_nobody_can_mend_is_an_error(runtime: Runtime) -> None:
    made = write_text(Text(), runtime)
    loaded = runtime.store.load(made.stage, made.key)
    assert loaded is not None
    harm(made.path / "text")
    with pytest.raises(ArtifactDamaged, match="run the stage that makes it again"):
        read_text(Text(), runtime, whole=loaded)


def test_what_was_just_written_is_not_read_again(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = write_text(Text(), runtime)

    def read_again(path: Path) -> str:
        raise AssertionError(f"{path} was hashed a second time")

    monkeypatch.setattr("store.store.sha256_of", read_again)
    join_text(Text(), runtime, shards=[made])
    with pytest.raises(AssertionError, match="a second time"):
        join_text(Text(text="other"), anew(runtime), shards=[made])
