"""A finished run goes along with the heal it made; one that is wrong takes nothing in."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from store.bundle import Index, export
from store.errors import ArtifactError, BadBundle, UnknownName
from store.runs import open_run, runs
from store.store import Store
from store.unbundle import take_in
from store.upkeep import items
from tasks.stage import Runtime
from tests.test_store.test_bundle import Member, rewritten
from tests.test_tasks.sample_stages import Text, join_text, write_text


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    """Two texts, and the first one joined by a run whose report that is."""
    runtime = Runtime(store=Store(tmp_path / "store"))
    write_text(Text(text="two"), runtime)
    run = open_run(runtime.store.root, "heal run mine.yaml", "student: a.cmf\n")
    assert run is not None
    runtime.ledger.events.clear()
    first = write_text(Text(text="one"), runtime)
    joined = join_text(Text(), runtime, shards=[first])
    run.follow(runtime.ledger)
    run.end("done", report=joined.name)
    return runtime


@pytest.mark.parametrize("how", ["last", "id", "its beginning", "report"])
def test_a_run_and_what_it_made_are_taken_in(
    runtime: Runtime, tmp_path: Path, how: str
) -> None:
    (run,) = runs(runtime.store.root)
    names = {"id": run.record.id, "its beginning": run.record.id[:-3], "last": "last"}
    name = names.get(how, run.record.report or "")
    bundle = tmp_path / "heal.tar"
    index = export(runtime.store, name, bundle)
    assert index.root == run.record.id
    other = Store(tmp_path / "other")
    taken = take_in(other, bundle)
    assert taken.run == run.record.id
    assert [one.split("/")[0] for one in taken.new] == ["write_text", "join_text"]
    (there,) = runs(other.root)
    assert (there.record, there.state) == (run.record, "done")
    assert take_in(other, bundle).new == ()
    assert len(runs(other.root)) == 1


def told(**changes: object) -> Callable[[list[Member]], None]:
    """The run's record with other words, and the index in step with it."""

    def change(found: list[Member]) -> None:
        place = next(i for i, m in enumerate(found) if m[0].name.endswith("run.json"))
        info, data = found[place]
        new = json.dumps(json.loads(data) | changes).encode()
        head, spelled = found[0]
        index = Index.model_validate_json(spelled)
        members = tuple(
            one.model_copy(
                update={"size": len(new), "sha256": hashlib.sha256(new).hexdigest()}
            )
            if one.name == info.name
            else one
            for one in index.members
        )
        spelled = index.model_copy(update={"members": members}).model_dump_json().encode()
        info.size, head.size = len(new), len(spelled)
        found[place], found[0] = (info, new), (head, spelled)

    return change


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"id": "another"}, "its run is another, or was not finished"),
        ({"state": "running"}, "its run is another, or was not finished"),
        ({"pid": "many"}, "its run cannot be read"),
    ],
)
def test_a_false_run_takes_nothing_in(
    runtime: Runtime, tmp_path: Path, changes: dict[str, object], problem: str
) -> None:
    bundle = tmp_path / "heal.tar"
    export(runtime.store, "last", bundle)
    other = Store(tmp_path / "other")
    with pytest.raises(BadBundle, match=problem):
        take_in(other, rewritten(bundle, told(**changes)))
    assert items(other) == []
    assert runs(other.root) == []


def test_what_cannot_be_exported_says_why(runtime: Runtime, tmp_path: Path) -> None:
    failed = open_run(runtime.store.root, "heal run", "")
    assert failed is not None
    failed.end("failed", error="no such file")
    out = tmp_path / "heal.tar"
    with pytest.raises(UnknownName, match="has no report; export one that is finished"):
        export(runtime.store, failed.record.id, out)
    with pytest.raises(UnknownName, match=r"no run in .* has finished"):
        export(Store(tmp_path / "empty"), "last", out)
    for path in runtime.store.root.glob("join_text/*/record.json"):
        path.unlink()
    with pytest.raises(ArtifactError, match="run again, then export"):
        export(runtime.store, "last", out)
    assert not out.exists()


def test_a_name_longer_than_a_tars_header_is_refused(
    runtime: Runtime, tmp_path: Path
) -> None:
    run = open_run(runtime.store.root, "heal run", "")
    assert run is not None
    (joined,) = [one.name for one in items(runtime.store) if one.name.startswith("join")]
    run.end("done", report=joined)
    folder = runtime.store.root / "runs" / ("r" * 100)
    run.folder.rename(folder)
    record = json.loads((folder / "run.json").read_text()) | {"id": folder.name}
    (folder / "run.json").write_text(json.dumps(record))
    with pytest.raises(ArtifactError, match="longer than the 100 bytes a tar's header has"):
        export(runtime.store, folder.name, tmp_path / "heal.tar")
    assert not (tmp_path / "heal.tar").exists()
