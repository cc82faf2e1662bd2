"""Stages on a store in a bucket: two machines, each with a folder for its copies."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from pydantic import BaseModel

from store.arrays import create_array, open_array
from store.artifact import Artifact
from store.bucket import Bucket
from store.bucket_locks import BucketHold
from store.bucket_store import BucketRecord, BucketStore
from store.errors import LeaseLost
from store.leases import LeaseTimes
from store.opened import bucket_folder, open_store
from tasks.stage import Runtime, stage
from tests.bucket_server import bucket_server, new_bucket
from tests.test_tasks.sample_stages import (
    RAN,
    Text,
    harm,
    join_text,
    read_text,
    said,
    states,
    write_text,
)

QUICK = LeaseTimes(beat_s=0.1, still_s=0.4, look_s=0.01)
WINDOWS = np.arange(24, dtype=np.uint16).reshape(4, 6)


class Nothing(BaseModel):
    pass


@stage("make_rows", version=1)
def make_rows(out: Path, settings: Nothing, runtime: Runtime) -> None:
    RAN.append("rows")
    rows = create_array(out, "rows", WINDOWS.shape, "u2", "raw")
    rows[:] = WINDOWS


@stage("sum_rows", version=1)
def sum_rows(
    out: Path, settings: Nothing, runtime: Runtime, *, rows: Artifact
) -> dict[str, int]:
    array = open_array(rows.path, "rows")
    return {"sum": sum(int(array[window].sum()) for window in range(len(array)))}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with bucket_server() as url:
        yield url


@dataclass
class Machines:
    url: str
    folder: Path

    def __call__(self, name: str) -> Runtime:
        """A new process on that machine."""
        root = bucket_folder(self.url, self.folder / name)
        return Runtime(store=open_store(root, leases=QUICK))

    @property
    def bucket(self) -> Bucket:
        return Bucket.of(self.url)

    def names(self, end: str = "") -> list[str]:
        """Every object but those of locks."""
        every = self.bucket.listing("")
        return [one for one in every if not one.startswith("locks/") and one.endswith(end)]


@pytest.fixture
def on(server: str, tmp_path: Path) -> Machines:
    RAN.clear()
    return Machines(new_bucket(server), tmp_path)


def test_another_machine_finds_what_the_first_made(on: Machines) -> None:
    made = write_text(Text(text="one"), on("a"))
    joined = join_text(Text(), on("a"), shards=[made])
    there = on("b")
    found = write_text(Text(text="one"), there)
    assert (found.path / "text").read_text() == "one"
    assert found.path != made.path
    again = join_text(Text(), there, shards=[found])
    assert again.manifest == joined.manifest
    read_text(Text(), there, whole=again)
    assert states(there) == ["cached", "cached", "ran"]
    assert RAN == ["one", "join", "read one"]
    stages = [name.partition("/")[0] for name in on.names("/record.json")]
    assert sorted(stages) == ["join_text", "read_text", "write_text"]


def test_a_second_hit_asks_the_bucket_and_reads_nothing_anew(on: Machines) -> None:
    write_text(Text(), on("a"))
    write_text(Text(), on("b"))
    there = on("b")
    text = write_text(Text(), there).path / "text"
    before = text.stat()
    assert write_text(Text(), on("b")).path / "text" == text
    assert text.stat().st_ino == before.st_ino
    assert states(there) == ["cached"]


def test_arrays_stay_in_the_bucket_and_are_read_by_chunk(on: Machines) -> None:
    made = make_rows(Nothing(), on("a"))
    there = on("b")
    found = make_rows(Nothing(), there)
    rows = open_array(found.path, "rows", window=2)
    assert rows[2].tolist() == [12, 13, 14, 15, 16, 17]
    assert sum_rows(Nothing(), there, rows=found).numbers == {"sum": int(WINDOWS.sum())}
    assert not (found.path / "rows").exists()
    assert (made.path / "rows" / "c").is_dir()
    assert RAN == ["rows"]


def spoil(bucket: Bucket, name: str) -> None:
    data = bucket.get(name)
    assert data is not None
    bucket.put(name, bytes(len(data)))


def lose(bucket: Bucket, name: str) -> None:
    bucket.remove([name])


def shorten(bucket: Bucket, name: str) -> None:
    bucket.put(name, b"")


@pytest.mark.parametrize("hurt", [spoil, lose, shorten])
@pytest.mark.parametrize("end", ["c/1/0", "zarr.json", "manifest.json"])
def test_a_damaged_object_is_found_before_use_and_made_again(
    on: Machines, hurt: Callable[[Bucket, str], None], end: str
) -> None:
    make_rows(Nothing(), on("a"))
    there = on("b")
    found = make_rows(Nothing(), there)
    (name,) = on.names(end)
    hurt(on.bucket, name)
    assert sum_rows(Nothing(), there, rows=found).numbers == {"sum": int(WINDOWS.sum())}
    assert RAN == ["rows", "rows"]
    assert "damaged, set aside and made again" in said(there)
    third = on("c")
    assert make_rows(Nothing(), third).numbers == {}
    assert states(third) == ["cached"]
    assert not on.bucket.get(name)  # what was damaged went


def test_a_record_cut_short_is_made_again(on: Machines) -> None:
    write_text(Text(), on("a"))
    (name,) = on.names("record.json")
    on.bucket.put(name, b"{")
    write_text(Text(), on("b"))
    assert RAN == ["a", "a"]


def test_what_the_bucket_lost_and_this_machine_has_is_sent_again(on: Machines) -> None:
    made = write_text(Text(), on("a"))
    (name,) = on.names("/text")
    lose(on.bucket, name)
    again = on("a")
    assert write_text(Text(), again).manifest == made.manifest
    assert states(again) == ["cached"]
    assert write_text(Text(), on("b")).manifest == made.manifest
    assert RAN == ["a"]
    assert len(on.names()) == 3  # text, manifest, record: no leftovers


def test_a_copy_that_is_damaged_here_is_brought_anew(on: Machines) -> None:
    made = write_text(Text(), on("a"))
    harm(made.path / "text")
    assert (write_text(Text(), on("a")).path / "text").read_text() == "a"
    assert RAN == ["a"]


def test_a_chunk_damaged_here_is_read_from_the_bucket(on: Machines) -> None:
    made = make_rows(Nothing(), on("a"))
    harm(made.path / "rows" / "c" / "1" / "0", keep_time=True)
    again = on("a")
    found = make_rows(Nothing(), again)
    assert sum_rows(Nothing(), again, rows=found).numbers == {"sum": int(WINDOWS.sum())}
    assert RAN == ["rows"]


def test_a_copied_bucket_has_other_tags_and_the_same_content(on: Machines) -> None:
    write_text(Text(), on("a"))
    (name,) = on.names("record.json")
    record = on.bucket.get(name)
    assert record is not None
    (text,) = [one.e_tag for one in on.bucket.listing("").values() if one.size == 1]
    assert text.strip('"').encode() in record
    on.bucket.put(name, record.replace(text.strip('"').encode(), b"other"))
    assert write_text(Text(), on("b")).numbers == {"letters": 1}
    assert RAN == ["a"]


def test_a_run_cut_off_before_its_record_left_nothing_that_counts(
    on: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(BucketStore, "_close", cut)
        with pytest.raises(KeyboardInterrupt):
            write_text(Text(), on("a"))
    assert len(on.names()) == 2
    write_text(Text(), on("b"))
    assert RAN == ["a", "a"]
    assert len(on.names()) == 3  # the leftovers of the first are gone
    again = on("a")  # its own copy gives way to the bucket's
    write_text(Text(), again)
    assert states(again) == ["cached"]
    assert len(on.names()) == 3


def test_who_was_taken_over_meanwhile_sends_no_record(
    on: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = on("a"), on("b")
    close = BucketStore._close

    def slept(
        self: BucketStore, artifact: Artifact, sent: BucketRecord, hold: BucketHold
    ) -> None:
        monkeypatch.setattr(BucketStore, "_close", close)
        hold.lease._ends.set()  # its heart stands still
        write_text(Text(), second)
        close(self, artifact, sent, hold)

    monkeypatch.setattr(BucketStore, "_close", slept)
    with pytest.raises(LeaseLost):
        write_text(Text(), first)
    third = on("c")
    assert write_text(Text(), third).manifest == write_text(Text(), second).manifest
    assert states(third) == ["cached"]
