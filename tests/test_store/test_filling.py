"""Folders that holders of leases fill: who takes over what, what becomes the artifact."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.errors import LeaseLost
from store.filling import Unplaced, fill_folder, place_filled, unplaced
from store.leases import LeaseTimes
from store.locks import Hold
from store.store import Store

KEY = "0" * 32
QUICK = LeaseTimes(beat_s=0.05, still_s=0.3, look_s=0.01)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, leases=QUICK)


@pytest.fixture
def hold(store: Store) -> Iterator[Hold]:
    with store.hold("make", KEY) as hold:
        yield hold


def left(store: Store, token: str, second: int, key: str = KEY) -> Path:
    """What a holder that is gone filled, last touched at that second."""
    folder = store.root / "filling" / f"make-{key}-{token}"
    folder.mkdir(parents=True)
    (folder / "text").write_text(token)
    os.utime(folder, (second, second))
    return folder


def test_the_latest_of_what_others_left_is_taken_over(store: Store, hold: Hold) -> None:
    left(store, "early", 100)
    late = left(store, "late", 200)
    other = left(store, "early", 300, key="1" * 32)
    folder = fill_folder(store, "make", KEY, hold)
    assert (folder / "text").read_text() == "late"
    assert not late.exists()
    assert [one.path for one in unplaced(store)] == sorted([folder, other])
    assert list((store.root / "trash").iterdir()) == []


def test_what_a_store_of_one_machine_left_half_made_is_taken_over(
    store: Store, hold: Hold
) -> None:
    place = store.path("make", KEY)
    place.mkdir(parents=True)
    (place / "checkpoint").write_text("half")
    folder = fill_folder(store, "make", KEY, hold)
    assert (folder / "checkpoint").read_text() == "half"
    assert not place.exists()


def test_a_fill_becomes_the_artifacts_folder(store: Store, hold: Hold) -> None:
    place = store.path("make", KEY)
    folder = fill_folder(store, "make", KEY, hold)
    folder.mkdir()
    (folder / "text").write_text("new")
    place.mkdir(parents=True)
    (place / "text").write_text("unfinished")
    assert [*unplaced(store)] == [Unplaced("make", KEY, folder)]
    place_filled(store, "make", KEY, folder, hold)
    assert (place / "text").read_text() == "new"
    assert [*unplaced(store)] == []
    assert list((store.root / "trash").iterdir()) == []


def test_what_another_finished_meanwhile_stays(store: Store, hold: Hold) -> None:
    place = store.path("make", KEY)
    folder = fill_folder(store, "make", KEY, hold)
    folder.mkdir()
    place.mkdir(parents=True)
    (place / "record.json").write_text("theirs")
    with pytest.raises(LeaseLost, match=f"make/{KEY}"):
        place_filled(store, "make", KEY, folder, hold)
    assert (place / "record.json").read_text() == "theirs"


def test_under_flock_an_artifact_is_filled_in_its_place(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.hold("make", KEY) as hold:
        folder = fill_folder(store, "make", KEY, hold)
        folder.mkdir(parents=True)
        place_filled(store, "make", KEY, folder, hold)
    assert folder == store.path("make", KEY)
    assert folder.is_dir()
