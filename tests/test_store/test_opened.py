"""What a store is called, what a folder that stands for a bucket holds, and names in it."""

import json
from pathlib import Path

import pytest

from store import space
from store.bucket_store import BucketStore
from store.elsewhere import away_array
from store.errors import ArtifactDamaged, DiskFull, NotAStore, UnknownName
from store.lease_folder import marked_times
from store.leases import LeaseTimes
from store.opened import bucket_folder, bucket_of, is_url, open_store, refuse_bucket
from store.pins import name_of, pin, pinned, unpin
from store.runs import open_run
from store.space import bytes_in, refuse_little_room, size_text
from store.store import Store
from tasks.stage import Runtime
from tests.test_tasks.sample_stages import Text, write_text


def test_the_folder_of_a_bucket_opens_as_the_bucket(tmp_path: Path) -> None:
    root = bucket_folder("s3:/heals/team", tmp_path)
    assert root == tmp_path / "heals" / "team"
    assert json.loads((root / "bucket.json").read_text()) == {"url": "s3://heals/team"}
    assert bucket_folder("s3://heals/team/", tmp_path) == root
    store = open_store(root)
    assert isinstance(store, BucketStore)
    assert store.bucket.url == "s3://heals/team"
    assert is_url("s3:/heals/team")
    assert not is_url(str(root))


def test_a_plain_folder_is_no_bucket(tmp_path: Path) -> None:
    assert bucket_of(tmp_path) is None
    assert bucket_of(tmp_path / "missing") is None
    assert type(open_store(tmp_path)) is Store
    refuse_bucket(tmp_path, "heal store gc")


@pytest.mark.parametrize("data", [b"", b"[]", b'{"url": 1}'])
def test_a_mark_that_cannot_be_read(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "bucket.json").write_bytes(data)
    with pytest.raises(NotAStore, match=r"bucket\.json: cannot be read; delete"):
        open_store(tmp_path)


def test_commands_of_a_disk_refuse_a_bucket(tmp_path: Path) -> None:
    root = bucket_folder("s3://heals", tmp_path)
    with pytest.raises(
        NotAStore, match="heal store gc is for stores on a disk, s3://heals"
    ):
        refuse_bucket(root, "heal store gc")


def test_leases_are_marked_before_anyone_else_opens_the_store(tmp_path: Path) -> None:
    times = LeaseTimes(beat_s=1, still_s=9, look_s=0.5)
    open_store(tmp_path / "read", keeps=False, leases=times)
    assert marked_times(tmp_path / "read" / "locks") is None
    open_store(tmp_path / "shared", leases=times)
    assert marked_times(tmp_path / "shared" / "locks") == times


@pytest.mark.parametrize("data", [b"", b"{}", b'{"url": "s3://heals"}'])
def test_a_way_to_arrays_that_cannot_be_read(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "elsewhere.json").write_bytes(data)
    with pytest.raises(ArtifactDamaged, match="cannot be read"):
        away_array(tmp_path, "rows")


def test_a_name_is_a_run_an_artifact_or_told_to_be_too_short(tmp_path: Path) -> None:
    runtime = Runtime(store=Store(tmp_path))
    one = write_text(Text(text="one"), runtime)
    write_text(Text(text="two"), runtime)
    ids = []
    for _ in range(2):
        run = open_run(tmp_path, "heal run", "")
        assert run is not None
        run.end("done")
        ids.append(run.record.id)
    store = runtime.store
    assert name_of(store, ids[0]) == ids[0]
    assert name_of(store, one.name[:20]) == one.name
    with pytest.raises(UnknownName, match=r"no run in .* has finished"):
        name_of(store, "last")  # both ended without a report
    for report in (one.name, None):
        last = open_run(tmp_path, "heal run", "")
        assert last is not None
        last.end("done" if report else "failed", report=report)
        ids.append(last.record.id)
    assert name_of(store, "last") == ids[2]
    with pytest.raises(UnknownName, match="begins the ids of 4 runs; give more of it"):
        name_of(store, ids[0][:2])
    with pytest.raises(UnknownName, match="'write_text' is a stage; name one of its 2"):
        name_of(store, "write_text")
    for name in (ids[1], one.name):
        pin(store, name)
    assert pinned(store) == {ids[1], one.name}
    assert [unpin(store, one.name), unpin(store, one.name)] == [True, False]
    assert pinned(store) == {ids[1]}


def test_room_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(bytes(7))
    (tmp_path / "c").write_bytes(bytes(5))
    assert bytes_in(tmp_path) == 12
    monkeypatch.setattr(space, "free_bytes", lambda _: 1_236_000_000)
    refuse_little_room(tmp_path, 1_236_000_000, "the trunk pass")
    with pytest.raises(DiskFull, match=r"pass needs about 1\.24 GB, 1\.24 GB are free"):
        refuse_little_room(tmp_path, 1_236_000_001, "the trunk pass")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (99_960, "100 kB"),
        (999_500, "1 MB"),
        (183_000_000, "183 MB"),
        (1_240_000_000, "1.24 GB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_sizes_in_three_digits(size: int, text: str) -> None:
    assert size_text(size) == text
