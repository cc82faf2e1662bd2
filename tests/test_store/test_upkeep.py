"""Looking after a store that real stages filled."""

import os
import threading
from pathlib import Path

import pytest

from store.errors import ArtifactError
from store.locks import key_lock
from store.store import Store
from store.upkeep import Item, chosen, items, remove, verify
from tasks.stage import Runtime
from tests.test_tasks.sample_stages import Text, join_text, write_text


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two texts, and a join that refers to the first."""
    runtime = Runtime(store=Store(tmp_path / "store"))
    first = write_text(Text(text="one"), runtime)
    write_text(Text(text="two"), runtime)
    join_text(Text(), runtime, shards=[first])
    return runtime.store


def part(store: Store) -> Item:
    """The text that the join refers to."""
    (joined,) = chosen(items(store), "join_text")
    assert joined.manifest is not None
    (name,) = joined.manifest.parts
    return chosen(items(store), name)[0]


def test_every_folder_is_listed_with_its_state(store: Store) -> None:
    cut = store.path("write_text", "f" * 32)
    (cut / "work").mkdir(parents=True)
    (cut / "work" / "half").write_bytes(b"12345")
    broken = part(store)
    (broken.path / "manifest.json").chmod(0o644)
    (broken.path / "manifest.json").write_text("{}")
    listed = {item.key: item for item in items(store)}
    assert sorted(item.state for item in listed.values()) == [
        "damaged",
        "finished",
        "finished",
        "unfinished",
    ]
    assert listed["f" * 32].size_bytes == 5
    assert listed[broken.key].state == "damaged"


def test_names_are_stages_whole_names_or_beginnings_of_keys(store: Store) -> None:
    listed = items(store)
    one = part(store)
    assert [item.stage for item in chosen(listed, "write_text")] == ["write_text"] * 2
    for name in (one.name, one.key, one.key[:12], f"write_text/{one.key[:12]}"):
        assert chosen(listed, name) == [one]
    with pytest.raises(ArtifactError, match="heal store ls lists"):
        chosen(listed, "nothing")
    with pytest.raises(ArtifactError, match="begins the names of 2 artifacts"):
        chosen(listed, "write_text/")


def test_a_part_goes_only_with_what_refers_to_it(store: Store) -> None:
    listed, one = items(store), part(store)
    with pytest.raises(ArtifactError, match=f"{one.name} is a part of join_text/"):
        remove(store, listed, [one], is_forced=False)
    assert one.path.exists()
    both = [one, *chosen(listed, "join_text")]
    remove(store, listed, both, is_forced=False)
    assert [item.stage for item in items(store)] == ["write_text"]


def test_force_takes_a_part_away(store: Store) -> None:
    remove(store, items(store), [part(store)], is_forced=True)
    (problems,) = verify(store, items(store), is_deep=False).values()
    assert "a part of another artifact is gone" in problems[0]


def test_what_is_being_made_is_left_alone_and_so_is_all_else(store: Store) -> None:
    listed = chosen(items(store), "write_text")
    loose, held = [i for i in listed if i != part(store)], part(store)
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        with key_lock(store.locks.path(held.stage, held.key)):
            ready.set()
            done.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    ready.wait(10)
    everything = [*loose, held, *chosen(items(store), "join_text")]
    with pytest.raises(ArtifactError, match="is being made by a run"):
        remove(store, items(store), everything, is_forced=False)
    assert all(item.path.exists() for item in everything)
    remove(store, items(store), everything, is_forced=True)
    done.set()
    holder.join()
    assert items(store) == []


def test_a_changed_byte_behind_its_time_needs_the_deep_look(store: Store) -> None:
    text = part(store).path / "text"
    status = text.stat()
    text.chmod(0o644)
    text.write_bytes(b"0ne")
    os.utime(text, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert verify(store, items(store), is_deep=False) == {}
    deep = verify(store, items(store), is_deep=True)
    assert list(deep) == [part(store).name]
    assert "its bytes changed" in deep[part(store).name][0]


def test_an_unreadable_manifest_is_a_problem(store: Store) -> None:
    broken = part(store)
    (broken.path / "record.json").chmod(0o644)
    (broken.path / "record.json").write_text("{")
    found = verify(store, items(store), is_deep=False)
    assert "the record cannot be read" in found[broken.name][0]
