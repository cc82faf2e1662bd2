"""What `gc` frees and what it must not; a run that goes on meanwhile."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from store.collect import free, sweep
from store.locks import announce, key_lock
from store.pins import pin, unpin
from store.runs import open_run
from store.store import Store
from store.upkeep import items
from store.using import gate
from tasks.stage import Runtime
from tests.test_tasks.sample_stages import Text, anew, join_text, read_text, write_text


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    """Two texts, a join of the first, and a reader of that; in no book."""
    runtime = Runtime(store=Store(tmp_path / "store"))
    first = write_text(Text(text="one"), runtime)
    write_text(Text(text="two"), runtime)
    joined = join_text(Text(), runtime, shards=[first])
    read_text(Text(), runtime, whole=joined)
    return runtime


def doomed(store: Store, keep: int = 10) -> list[str]:
    return [one.name for one in sweep(store, keep, grace_s=-1).wastes]


def named(runtime: Runtime, stage: str, place: int = 0) -> str:
    events = [one for one in runtime.ledger.events if one.name == stage]
    return f"{stage}/{events[place].key}"


def test_a_run_keeps_what_it_asked_for_and_all_that_was_made_from(runtime: Runtime) -> None:
    run = open_run(runtime.store.root, "a command", "")
    assert run is not None
    again = anew(runtime)
    joined = again.store.load(*named(runtime, "join_text").split("/"))
    assert joined is not None
    again.ledger.on_change = run.follow
    read_text(Text(), again, whole=joined)
    run.follow(again.ledger)
    run.end("done")
    # Only the second text: the reader's input leads to the join, its part to the first.
    assert doomed(runtime.store) == [named(runtime, "write_text", 1)]
    assert len(doomed(runtime.store, keep=0)) == 4


def test_a_pin_keeps_its_lineage_until_it_is_taken_off(runtime: Runtime) -> None:
    joined = named(runtime, "join_text")
    pin(runtime.store, joined)
    assert named(runtime, "write_text") not in doomed(runtime.store)
    assert len(doomed(runtime.store)) == 2
    assert unpin(runtime.store, joined)
    assert len(doomed(runtime.store)) == 4


def test_what_is_young_stays(runtime: Runtime) -> None:
    assert sweep(runtime.store, 0).wastes == ()


def test_looking_frees_nothing_and_freeing_takes_all_of_it(runtime: Runtime) -> None:
    found = sweep(runtime.store, 0, grace_s=-1)
    assert len(items(runtime.store)) == 4
    assert found.size_bytes == sum(item.size_bytes for item in items(runtime.store))
    assert free(runtime.store, found).size_bytes == found.size_bytes
    assert items(runtime.store) == []
    assert not list((runtime.store.root / "trash").iterdir())


def test_what_a_held_lock_says_it_reads_stays(runtime: Runtime) -> None:
    store, first = runtime.store, named(runtime, "write_text")
    lock = store.locks.path("read_text", "f" * 32)
    found = sweep(store, 0, grace_s=-1)
    with key_lock(lock):
        announce(lock, [first])
        assert first not in doomed(store)
        freed = free(store, found)  # planned before anyone read it
    assert first not in [one.name for one in freed.wastes]
    assert [item.name for item in items(store)] == [first]
    assert doomed(store) == [first]


def test_an_input_freed_before_it_was_announced_is_made_again(runtime: Runtime) -> None:
    store, later = runtime.store, anew(runtime)
    text = write_text(Text(text="one"), later)
    joined = join_text(Text(), later, shards=[text])
    waits = threading.Event()
    with gate(store, alone=True):  # gc, at work

        def read() -> None:
            waits.set()
            read_text(Text(text="anew"), later, whole=joined)

        reader = threading.Thread(target=read)
        reader.start()
        waits.wait(5)
        time.sleep(0.05)  # it has looked at its input, and stands before the gate
        path = store.path(*named(runtime, "join_text").split("/"))
        path.rename(store.root / "gone")
    reader.join(10)
    assert not reader.is_alive()
    (read_again, *_) = [e for e in later.ledger.events if e.name == "read_text"]
    assert store.load("read_text", read_again.key) is not None
    assert store.load(joined.stage, joined.key) is not None


def test_a_process_that_fills_keeps_what_it_makes(tmp_path: Path) -> None:
    root = tmp_path / "store"
    program = Path(__file__).parents[1] / "test_tasks" / "stage_program.py"
    child = subprocess.Popen(
        [sys.executable, str(program), str(root)],
        cwd=Path.cwd(),
        env={"PYTHONPATH": str(Path.cwd()), "PATH": "/usr/bin:/bin"},
    )
    try:
        while not (tmp_path / "ran").exists():
            assert child.poll() is None
            time.sleep(0.02)
        store = Store(root)
        assert free(store, sweep(store, 0, grace_s=-1)).wastes == ()
    finally:
        (tmp_path / "go").touch()
        assert child.wait(60) == 0
    assert [item.state for item in items(Store(root))] == ["finished"]


def test_leftovers_are_told_apart(runtime: Runtime, tmp_path: Path) -> None:
    store = runtime.store
    pin(store, named(runtime, "read_text"))
    pin(store, named(runtime, "write_text", 1))
    cut = store.path("write_text", "e" * 32) / "work"
    cut.mkdir(parents=True)
    broken = store.path("write_text", "d" * 32)
    broken.mkdir()
    (broken / "record.json").write_text("{")
    (store.root / "damaged" / "write_text-1").mkdir(parents=True)
    gone = tmp_path / "data"
    gone.write_text("x")
    store.digests.sha256(gone)
    assert sweep(store, 10, grace_s=-1).wastes[-1].kind == "damaged"
    gone.unlink()
    kinds = {one.kind: one.path for one in sweep(store, 10, grace_s=-1).wastes}
    assert kinds["interrupted"] == cut.parent
    assert kinds["forgotten"].parent.name == "digests"
    assert json.loads(kinds["forgotten"].read_bytes())["file"]["size"] == 1
    free(store, sweep(store, 10, grace_s=-1))
    assert doomed(store) == []
    assert len(items(store)) == 4
