"""Artifacts and the store over HTTP: damage, why a stage ran, lineage, a large store."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from store.store import Store
from ui.inspector.app import create_app
from ui.inspector.depot import Depot

if TYPE_CHECKING:
    from tests.inspected import Inspected
    from tests.small_heal import Ground


def test_damage_is_shown_and_nothing_falls(client: TestClient, seen: "Inspected") -> None:
    page = client.get(f"/stage/{seen.damaged}").text
    assert "1 of " in page
    assert "files gone" in page
    heal = client.get(f"/heal/{seen.longer}").text
    assert "s-damaged" in heal
    assert "s-damaged" not in client.get(f"/heal/{seen.done}").text
    found = client.get(f"/api/artifacts/{seen.damaged}/check").json()
    assert found["is_whole"] is False
    assert "log.arrow: is missing" in str(found["problems"])


def test_a_changed_byte_is_found_by_the_deep_look_alone(
    client: TestClient, seen: "Inspected"
) -> None:
    import os

    key = seen.key("pack_windows")
    path = next((seen.root / "pack_windows" / key).glob("*.arrow"))
    before, times = path.read_bytes(), path.stat()
    path.chmod(0o644)
    path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    try:
        quick = client.get(f"/api/artifacts/pack_windows/{key}/check").json()
        deep = client.get(f"/api/artifacts/pack_windows/{key}/check?deep=1").json()
        said = client.get(f"/stage/pack_windows/{key}/check?deep=1").text
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert quick["is_whole"]
    assert not deep["is_whole"]
    assert "its bytes changed since it was written" in said


def test_a_broken_manifest_record_or_report_is_a_page(
    finished: "Ground", tmp_path: Path
) -> None:
    root = shutil.copytree(finished.store, tmp_path / "store")
    client = TestClient(create_app(root))
    for stage, file, status in (
        ("train_draft", "manifest.json", 200),
        ("measure_draft", "record.json", 200),
        ("report", "report.json", 410),
    ):
        folder = next((root / stage).iterdir())
        (folder / file).chmod(0o644)
        (folder / file).write_bytes(b'{"result": 1, "half')
        path = f"/stage/{stage}/{folder.name}" if status == 200 else "/"
        answer = client.get(path)
        assert answer.status_code == 200
        assert "damaged" in answer.text
    assert client.get("/store").status_code == 200


def test_why_it_ran_marks_the_setting_that_changed(
    client: TestClient, seen: "Inspected"
) -> None:
    rows = client.get(f"/api/artifacts/{seen.damaged}/recipe.json").json()["rows"]
    changed = {row["name"]: (row["value"], row["was"]) for row in rows if row["was"]}
    assert changed == {"steps": ("16", "12")}
    assert "steps is 16, was 12" in client.get(f"/heal/{seen.longer}").text


def test_inputs_and_consumers_lead_both_ways(client: TestClient, seen: "Inspected") -> None:
    train = f"train_draft/{seen.key('train_draft')}"
    inputs = client.get(f"/api/artifacts/{train}/inputs.json").json()["rows"]
    windows = next(row["artifact"] for row in inputs if row["name"] == "windows")
    back = client.get(f"/api/artifacts/{windows}/consumers.json").json()["rows"]
    assert train in {row["artifact"] for row in back}


def test_the_lineage_runs_from_the_windows_to_the_report(seen: "Inspected") -> None:
    from ui.inspector.heal_list import HealBook
    from ui.inspector.lineage import lineage_of

    depot = Depot(seen.root)
    lineage = lineage_of(HealBook(depot).heal(seen.done), depot)
    stages = [node.stage for node in lineage.nodes]
    edges = {(stages[a], stages[b]) for a, b in lineage.edges}
    assert {
        ("pack_windows", "train_draft"), ("trunk_pass", "train_draft"),
        ("trunk_shard", "trunk_pass"), ("train_draft", "rewrite_model"),
        ("rewrite_model", "measure_draft"), ("measure_draft", "report"),
    } <= edges  # fmt: skip
    reached, todo = set(), [stages.index("report")]
    while todo:
        reached.add(todo.pop())
        todo += [a for a, b in lineage.edges if b in reached and a not in reached]
    assert "pack_windows" in {stages[i] for i in reached}


def test_an_empty_store_says_how_to_fill_it(tmp_path: Path) -> None:
    client = TestClient(create_app(tmp_path / "none"))
    assert "heal demo" in client.get("/").text
    assert "heal demo" in client.get("/store").text
    assert not (tmp_path / "none").exists()


def test_looking_writes_nothing(finished: "Ground") -> None:
    def state() -> dict[str, int]:
        return {str(p): p.stat().st_mtime_ns for p in finished.store.rglob("*")}

    before = state()
    client = TestClient(create_app(finished.store))
    for artifact in Store(finished.store).artifacts():
        client.get(f"/stage/{artifact.name}")
        client.get(f"/stage/{artifact.name}/check?deep=1")
    client.get("/")
    client.get("/store")
    assert state() == before


def test_another_name_for_this_machine_is_refused(finished: "Ground") -> None:
    app = create_app(finished.store, hosts=("127.0.0.1",))
    assert TestClient(app, base_url="http://127.0.0.1").get("/").status_code == 200
    assert TestClient(app, base_url="http://evil.example").get("/").status_code == 400


def test_what_collecting_would_free_is_told_and_nothing_goes(
    client: TestClient, seen: "Inspected"
) -> None:
    from store.collect import sweep

    expected = sweep(Store(seen.root, keeps=False), 1)
    page = client.get("/store?keep=1").text
    assert f"{expected.kept:,} artifacts stay" in page
    assert all(waste.path.exists() for waste in expected.wastes)
    assert client.get("/store?keep=0").status_code == 400


def test_of_a_thousand_artifacts_only_what_changed_is_read_again(
    finished: "Ground", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    root = shutil.copytree(finished.store, tmp_path / "store")
    source = next((root / "measure_draft").iterdir())
    record = json.loads((source / "record.json").read_text())
    manifest = (source / "manifest.json").read_bytes()
    for number in range(1000):
        folder = root / "measure_draft" / f"{number:032x}"
        folder.mkdir()
        (folder / "manifest.json").write_bytes(manifest)
        record["result"] = json.dumps(json.loads(record["result"]) | {"key": folder.name})
        (folder / "record.json").write_text(json.dumps(record))
    client = TestClient(create_app(root))
    assert "1,0" in client.get("/store").text  # the first look reads every manifest

    read: list[str] = []
    load = Store.load

    def counted(store: Store, stage: str, key: str) -> object:
        read.append(key)
        return load(store, stage, key)

    monkeypatch.setattr(Store, "load", counted)
    for path in ("/", "/store", "/store?stage=measure_draft"):
        assert client.get(path).status_code == 200
    assert len(read) < 10
    assert client.get(f"/stage/measure_draft/{source.name}").status_code == 200
    assert len(read) < 20
