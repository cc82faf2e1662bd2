"""The inspector over HTTP: every page of a real store, its states, its refusals."""

import csv
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from store.store import Store

if TYPE_CHECKING:
    from tests.inspected import Inspected


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
