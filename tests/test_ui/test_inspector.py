"""The inspector over HTTP: every page of a real store, its states, its refusals."""

import csv
import io
import re
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


def names(root: Path) -> list[str]:
    return [artifact.name for artifact in Store(root).artifacts()]


def test_the_list_tells_every_state(client: TestClient, seen: "Inspected") -> None:
    page = client.get("/").text
    for run in (seen.done, seen.cached, seen.longer, seen.failed, seen.cut, seen.running):
        assert f'href="/heal/{run}"' in page
    rows = {row["id"]: row for row in client.get("/api/heals.json").json()["rows"]}
    expected = {
        "done": "done",
        "cached": "cached",
        "failed": "failed",
        "cut": "interrupted",
        "running": "running",
    }
    assert {name: rows[getattr(seen, name)]["state"] for name in expected} == expected
    assert rows[seen.running]["note"] == "train_draft, step 5 of 12"
    assert rows[seen.done]["codecs"] == 2


def test_the_list_filters_and_sorts(client: TestClient, seen: "Inspected") -> None:
    def ids(query: str) -> list[str]:
        return [row["id"] for row in client.get(f"/api/heals.json?{query}").json()["rows"]]

    assert ids("state=failed") == [seen.failed]
    assert ids("q=longer.yaml") == [seen.longer]
    assert ids("q=RUNNING own") == [seen.running]
    assert ids("q=nothing+like+it") == []
    by_start = ids("")
    assert by_start.index(seen.running) < by_start.index(seen.done)
    gains = [row["gain"] for row in client.get("/api/heals.json?sort=gain").json()["rows"]]
    known = [gain for gain in gains if gain is not None]
    assert known == sorted(known, reverse=True)
    assert gains[: len(known)] == known


def test_every_artifact_has_a_page_and_every_link_on_it_leads_somewhere(
    client: TestClient, seen: "Inspected"
) -> None:
    pages = ["/", "/store", f"/heal/{seen.done}", f"/heal/{seen.longer}"]
    pages += [f"/stage/{name}" for name in names(seen.root)]
    broken = {}
    targets: set[str] = set()
    for path in pages:
        answer = client.get(path)
        if answer.status_code != 200:
            broken[path] = answer.status_code
        found = re.findall(r'href="(/[^"#]*)', answer.text)
        targets |= {one.replace("&amp;", "&") for one in found}
    for path in sorted(t for t in targets if not t.startswith(VIEWS)):
        status = client.get(path).status_code
        if status != 200:
            broken[path] = status
    assert broken == {}


# Pages of other files, tested there.
VIEWS = ("/windows", "/arrays", "/training", "/compare")


def test_a_hostile_name_stays_text(client: TestClient, seen: "Inspected") -> None:
    for path in ("/", f"/heal/{seen.failed}", "/?q=<script>alert(1)</script>"):
        page = client.get(path).text
        assert "&lt;script&gt;alert" in page, path
        assert "<script>alert" not in page, path


def test_no_page_says_what_its_policy_forbids(
    client: TestClient, seen: "Inspected"
) -> None:
    paths = ["/", "/store", f"/heal/{seen.done}", f"/heal/{seen.running}", "/nowhere"]
    paths.append(f"/stage/train_draft/{seen.key('train_draft')}")
    for path in paths:
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        forbidden = re.findall(
            r'\sstyle="|<style|\son[a-z]+="|<script(?! src)', answer.text
        )
        assert forbidden == [], path
        assert re.findall(r'(?:src|href)="(?:https?:)?//', answer.text) == [], path


@pytest.mark.parametrize(
    "path",
    [
        "/heal/nobody",
        "/stage/train_draft/" + "0" * 32,
        "/stage/train_draft/abc",
        "/stage/runs/" + "0" * 32,
        "/stage/..%2f..%2fetc/" + "0" * 32,
        "/stage/train_draft/..%2f..%2f..%2fetc%2fpasswd",
        "/static/..%2f..%2fapp.py",
        "/static/../app.py",
        "/heal/..%2f..%2fetc%2fpasswd",
        "/api/heals/nobody/steps.csv",
        "/nowhere",
    ],
)
def test_what_is_not_there_is_said_so(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "root:" not in answer.text
    if path.startswith("/api/"):
        assert answer.json()["error"]
    else:
        assert "<h1>" in answer.text or path.startswith("/static/")


@pytest.mark.parametrize("path", ["/?sort=nonsense", "/api/heals.xml"])
def test_what_cannot_be_understood_is_said_so(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 400
    assert "Input should be" in answer.text


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


def test_csv_and_json_hold_the_same_and_no_formula(
    client: TestClient, seen: "Inspected"
) -> None:
    for table in ("drafts", "steps", "rounds", "depth", "codecs", "stages", "provenance"):
        base = f"/api/heals/{seen.done}/{table}"
        told = client.get(f"{base}.json").json()
        lines = list(csv.reader(io.StringIO(client.get(f"{base}.csv").text)))
        assert lines[0] == told["columns"], table
        assert len(lines) - 1 == len(told["rows"]) > 0, table
    hostile = client.get("/api/heals.csv?q=script").text
    assert "<script>" in hostile  # data stays data; nothing renders a CSV
    from ui.inspector.answer import as_table, table_response

    out = table_response(as_table(("a",), [("=1+1",), ("@x",), (-1.5,)]), "csv", "t")
    assert bytes(out.body).decode().splitlines() == ["a", "'=1+1", "'@x", "-1.5"]


def test_plots_stand_alone_with_their_colours(
    client: TestClient, seen: "Inspected"
) -> None:
    import xml.etree.ElementTree as ET

    for plot in ("drafts", "rounds", "speed", "codecs"):
        answer = client.get(f"/api/heals/{seen.done}/plots/{plot}.svg")
        assert answer.headers["content-type"].startswith("image/svg+xml")
        root = ET.fromstring(answer.text)
        assert root.attrib["width"].isdigit()
        assert "var(--" not in answer.text
        assert "#cf6a1b" in answer.text


def test_the_api_describes_itself_without_asking_elsewhere(client: TestClient) -> None:
    paths = client.get("/api/openapi.json").json()["paths"]
    assert "/api/heals.{form}" in paths
    assert all(path.startswith("/api/") for path in paths)
    assert client.get("/docs").status_code == 404


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
    for name in names(finished.store):
        client.get(f"/stage/{name}")
        client.get(f"/stage/{name}/check?deep=1")
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
