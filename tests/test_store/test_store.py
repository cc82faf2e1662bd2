import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from store.artifact import Artifact
from store.completion import StageResult, finish, prepare
from store.errors import (
    ArtifactDamaged,
    ArtifactError,
    BadName,
    DiskFull,
    StoreReadOnly,
    storage_errors,
)
from store.manifest import Origin, Recipe, key_of
from store.store import Store

ORIGIN = Origin(machine="cpu", versions={}, started="2026", seconds=1.5, resumed=False)
PLAIN = {"serializer": {"type": "json"}}  # of a record's metadata


def put(store: Store, text: str, parts: Sequence[Artifact] = ()) -> Artifact:
    """An artifact of stage `make` that holds `text`, its record written by hand."""
    recipe = Recipe(stage="make", version=1, settings={"text": text}, inputs={})
    out = store.path("make", key_of(recipe))
    prepare(out)
    (out / "sub").mkdir()
    (out / "sub" / "text").write_text(text)
    reference = finish(out, recipe, StageResult(parts=parts), ORIGIN)
    # The shape of Prefect's record, as far as the store looks.
    record = {"metadata": PLAIN, "result": reference.model_dump_json()}
    (out / "record.json").write_text(json.dumps(record))
    found = store.load("make", key_of(recipe))
    assert found is not None
    return found


def text_of(artifact: Artifact) -> Path:
    return artifact.path / "sub" / "text"


def rewrite(path: Path, data: bytes, *, keep_time: bool = False) -> None:
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    path.chmod(0o644)
    path.write_bytes(data)
    if keep_time:
        os.utime(path, ns=times)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_nothing_is_there_before(store: Store) -> None:
    assert store.load("make", "0" * 32) is None
    assert list(store.artifacts()) == []
    assert store.set_aside("make", "0" * 32) is None


def test_a_finished_artifact_is_found_and_sound(store: Store) -> None:
    made = put(store, "one")
    assert Store(store.root).load("make", made.key) == made
    assert store.check(made) == []
    assert store.deep_check(made) == []
    assert made.name == f"make/{made.key}"


def test_without_its_record_it_is_unfinished(store: Store) -> None:
    made = put(store, "one")
    (made.path / "record.json").unlink()
    assert store.load("make", made.key) is None


@pytest.mark.parametrize("name", ["record.json", "manifest.json"])
@pytest.mark.parametrize("harm", ["cut", "empty", "zero", "flip", "gone"])
def test_its_own_papers_are_watched_too(store: Store, name: str, harm: str) -> None:
    made = put(store, "one")
    file = made.path / name
    data = file.read_bytes()
    flipped = data.replace(b'"make', b'"fake').replace(b'\\"make', b'\\"fake')
    if harm == "gone":
        file.unlink()
        if name == "record.json":
            assert store.load("make", made.key) is None
            return
    else:
        harmed = {"cut": data[:30], "empty": b"", "zero": bytes(len(data)), "flip": flipped}
        rewrite(file, harmed[harm], keep_time=True)
    with pytest.raises(ArtifactDamaged):
        store.load("make", made.key)


@pytest.mark.parametrize(
    ("data", "problem"),
    [(b"on", "holds 2 bytes, 3 were written"), (b"onE", "changed"), (bytes(3), "changed")],
)
def test_a_changed_file_is_found_quickly(store: Store, data: bytes, problem: str) -> None:
    made = put(store, "one")
    rewrite(text_of(made), data)
    (found,) = store.check(made)
    assert problem in found
    assert str(text_of(made)) in found


def test_a_missing_file_is_found_quickly(store: Store) -> None:
    made = put(store, "one")
    text_of(made).unlink()
    assert store.check(made) == [f"{text_of(made)}: is missing"]


def test_only_reading_finds_a_change_behind_the_files_times(store: Store) -> None:
    made = put(store, "one")
    rewrite(text_of(made), b"onE", keep_time=True)
    assert store.check(made) == []
    assert store.deep_check(made) != []


def test_first_use_reads_everything_later_uses_only_look(store: Store) -> None:
    made = put(store, "one")
    assert store.damage_before_use(made) == {}
    rewrite(text_of(made), b"onE", keep_time=True)
    assert store.damage_before_use(made) == {}
    assert list(Store(store.root).damage_before_use(made)) == [made.name]
    rewrite(text_of(made), b"oNE")
    assert list(store.damage_before_use(made)) == [made.name]


@pytest.mark.parametrize("way", ["move", "copy"])
def test_a_store_may_move(store: Store, tmp_path: Path, way: str) -> None:
    made = put(store, "one")
    elsewhere = tmp_path / "elsewhere"
    if way == "move":
        store.root.rename(elsewhere)
    else:
        shutil.copytree(store.root, elsewhere, copy_function=shutil.copyfile)
    moved = Store(elsewhere)
    found = moved.load("make", made.key)
    assert found is not None
    assert moved.check(found) == []
    assert found.content_digest == made.content_digest


def test_parts_are_checked_with_the_whole(store: Store) -> None:
    first, second = put(store, "one"), put(store, "two")
    whole = put(store, "whole", [first, second, first])
    assert [p.name for p in store.parts(whole)] == [first.name, second.name, first.name]
    assert store.check(whole) == []
    rewrite(text_of(second), b"twO")
    assert list(store.damage(whole)) == [second.name]
    assert len(store.check(whole)) == len(store.deep_check(whole)) == 1
    shutil.rmtree(second.path)
    assert list(store.damage(whole)) == [second.name]
    with pytest.raises(ArtifactDamaged, match="gone"):
        store.parts(whole)


def test_a_part_made_again_with_other_content_spoils_the_whole(store: Store) -> None:
    part = put(store, "one")
    whole = put(store, "whole", [part])
    prepare(part.path)
    (part.path / "text").write_text("other")
    recipe = Recipe(stage="make", version=1, settings={"text": "one"}, inputs={})
    reference = finish(part.path, recipe, StageResult(), ORIGIN)
    record = {"metadata": PLAIN, "result": reference.model_dump_json()}
    (part.path / "record.json").write_text(json.dumps(record))
    assert list(store.damage(whole)) == [whole.name]


def test_the_content_of_parts_is_content(store: Store) -> None:
    one, two = put(store, "one"), put(store, "two")
    digests = {
        put(store, "whole", parts).content_digest
        for parts in ([], [one], [two], [one, two], [two, one])
    }
    assert len(digests) == 5


def test_damage_is_set_aside_and_kept(store: Store) -> None:
    for _ in range(2):
        made = put(store, "one")
        assert store.clear_damage("make", made.key) == []
        rewrite(text_of(made), b"onE", keep_time=True)
        assert len(store.clear_damage("make", made.key)) == 1
        assert store.load("make", made.key) is None
    names = sorted(p.name for p in (store.root / "damaged").iterdir())
    assert names == [f"make-{made.key}-1", f"make-{made.key}-2"]


def test_listing_and_space(store: Store) -> None:
    made = [put(store, "one"), put(store, "twelve")]
    torn = put(store, "torn")
    rewrite(torn.path / "manifest.json", b"{")
    assert sorted(a.key for a in store.artifacts()) == sorted(a.key for a in made)
    assert store.space()["make"] > 100


def test_no_name_leads_out_of_the_store(store: Store) -> None:
    for stage, key in [("..", "0" * 32), ("make", "../../x"), ("locks", "0" * 32)]:
        for find in (store.path, store.load, store.set_aside, store.locks.path):
            with pytest.raises(BadName):
                find(stage, key)


def test_a_full_disk_is_one_sentence(store: Store) -> None:
    with (
        pytest.raises(DiskFull, match="no space is left for stage make; free some"),
        storage_errors(store.root, "stage make"),
    ):
        Path("/dev/full").write_bytes(b"x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_store_is_one_sentence(store: Store) -> None:
    store.root.mkdir()
    store.root.chmod(0o555)
    with pytest.raises(StoreReadOnly, match="read-only"), storage_errors(store.root, "x"):
        (store.root / "make").mkdir()


def test_a_permission_elsewhere_is_not_the_stores(store: Store) -> None:
    with pytest.raises(PermissionError), storage_errors(store.root, "x"):
        raise PermissionError(13, "Permission denied", "/data/private.parquet")
    with pytest.raises(ArtifactError), storage_errors(store.root, "x"):
        raise PermissionError(13, "Permission denied", str(store.root / "make"))
