"""What the newer downloads hold, against arrays, reports and sweeps read beside them."""

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from starlette.testclient import TestClient

from store.collect import sweep
from store.store import Store
from tests.test_ui.pages import read_page
from tests.test_ui.planted import planted_in
from ui.inspector.app import create_app

if TYPE_CHECKING:
    from tests.inspected import Inspected

SVG = "{http://www.w3.org/2000/svg}"


def rows(client: TestClient, path: str) -> list[dict[str, Any]]:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["rows"]
    return found


def measured(seen: "Inspected") -> tuple[str, dict[str, np.ndarray], int]:
    """The address of the done heal's healed measure, its arrays, and a telling window."""
    record = json.loads((seen.root / "runs" / seen.done / "run.json").read_text())
    key = next(
        event["key"]
        for event in reversed(record["events"])
        if event["name"] == "measure_draft" and event["label"].startswith("healed")
    )
    folder = seen.root / "measure_draft" / key
    names = ("window", "counted", "hit", "draft_top4_id", "draft_top4_p")
    found = {name: np.asarray(zarr.open_array(folder / name, mode="r")) for name in names}
    return f"measure_draft/{key}", found, int(found["counted"][:, :, 1].std(1).argmax())


def test_the_chain_and_its_best_four_are_those_of_the_arrays(
    client: TestClient, seen: "Inspected"
) -> None:
    here, arrays, at = measured(seen)
    window = int(arrays["window"][at])
    flags = np.concatenate((arrays["counted"][at], arrays["hit"][at]), axis=1)[:-4]
    _, starts = np.unique(flags, axis=0, return_index=True)  # one of every kind
    assert len(starts) > 1
    for start in starts.tolist():
        query = f"w={window}&at={start + 2}&c=1"
        chain = rows(client, f"/api/windows/{here}/chain.json?{query}")
        assert [row["step"] for row in chain] == [1, 2]
        assert [row["position"] for row in chain] == [start + 2, start + 3]
        for row, counted, hit in zip(
            chain, arrays["counted"][at, start], arrays["hit"][at, start], strict=True
        ):
            state = "held" if hit else "missed"
            assert row["healed_state"] == (state if counted else "not reached")
        four = rows(client, f"/api/windows/{here}/top4.json?{query}")
        mine = [row["p"] for row in four if row["who"] == "Healed draft"]
        is_counted = bool(arrays["counted"][at, start, 0])
        wanted = arrays["draft_top4_p"][at, start, 0].tolist() if is_counted else []
        assert mine == pytest.approx(wanted)
        trunk = [row["p"] for row in four if row["who"] == "Trunk"]
        assert trunk == sorted(trunk, reverse=True)
        assert len(trunk) == 4


def test_a_token_that_no_chain_reaches_has_no_table(
    client: TestClient, seen: "Inspected"
) -> None:
    here, arrays, _ = measured(seen)
    query = f"w={int(arrays['window'][0])}&at=0&c=1"
    answer = client.get(f"/api/windows/{here}/chain.json?{query}")
    assert answer.status_code == 404
    assert "No chain of this step reaches token 0" in answer.json()["error"]
    assert client.get(f"/api/windows/{here}/top4.csv?c=99").status_code == 404


def test_plots_of_a_window_tell_what_was_kept(
    client: TestClient, seen: "Inspected"
) -> None:
    here, arrays, at = measured(seen)
    window = int(arrays["window"][at])
    drawn = client.get(f"/api/windows/{here}/plots/kept.svg?w={window}")
    mean = arrays["hit"][at].sum(-1).mean()
    assert f"healed {mean:.2f}" in drawn.text
    assert len(ET.fromstring(drawn.text).findall(f".//{SVG}polyline")) == 2
    drawn = client.get(f"/api/windows/{here}/plots/starts.svg?w={window}")
    kept = int((arrays["hit"][at].sum(-1) > 0).sum())
    assert len(ET.fromstring(drawn.text).findall(f".//{SVG}rect[@class='fh']")) == kept


@pytest.mark.parametrize(("plot", "decimals"), [("drafts", 2), ("steps", 1)])
def test_strips_of_a_comparison_stand_in_one_file(
    client: TestClient, seen: "Inspected", plot: str, decimals: int
) -> None:
    query = f"a={seen.done}&b={seen.longer}"
    drawn = client.get(f"/api/compare/plots/{plot}.svg?{query}")
    told = {t.text for t in ET.fromstring(drawn.text).iter(f"{SVG}text")}
    factor = 100 if plot == "steps" else 1
    for row in rows(client, f"/api/compare/{plot}.json?{query}"):
        if row["data"] == "all data" and row["draft"] == "healed":
            for side in "ab":
                assert f"{factor * row[f'{side}_value']:.{decimals}f}" in told
    alone = client.get(f"/api/compare/plots/{plot}.svg?a={seen.failed}&b={seen.cut}")
    assert alone.status_code == 404


def test_strips_of_the_list_are_those_of_its_filter(
    client: TestClient, seen: "Inspected"
) -> None:
    def strips(query: str) -> int:
        drawn = ET.fromstring(client.get(f"/api/heals/plots/held.svg?{query}").text)
        return len(
            drawn.findall(f".//{SVG}svg[@role='img']/{SVG}svg/{SVG}svg[@role='img']")
        )

    with_measures = [r for r in rows(client, "/api/heals.json") if r["healed"] is not None]
    assert strips("") == len(with_measures) > 1
    assert strips("q=longer.yaml") == 1
    assert client.get("/api/heals/plots/held.svg?q=nothing-like-it").status_code == 404


def test_the_store_tells_what_is_damaged_and_what_is_cut_off(
    client: TestClient, seen: "Inspected", tmp_path: Path
) -> None:
    unfinished = {r["key"]: r for r in rows(client, "/api/store/unfinished.json")}
    assert unfinished["b" * 32]["state"] == "running"
    assert unfinished["b" * 32]["stage"] == "train_draft"
    root = shutil.copytree(seen.root, tmp_path / "store")
    key = seen.key("measure_draft")
    record = root / "measure_draft" / key / "record.json"
    record.chmod(0o644)
    record.write_text("{")
    (root / "damaged" / "old").mkdir(parents=True)
    told = rows(TestClient(create_app(root)), "/api/store/damaged.json")
    states = {row["name"]: row["state"] for row in told}
    assert states == {f"measure_draft/{key}": "damaged", "damaged/old": "set aside"}
    assert told[0]["problem"]


def test_what_would_go_is_what_a_sweep_finds(tmp_path: Path) -> None:
    import os

    planted = planted_in(tmp_path / "store")
    for path in sorted(planted.root.rglob("*")):
        os.utime(path, (1e9, 1e9))  # older than the hour that is always kept
    wastes = sweep(Store(planted.root, keeps=False), 1).wastes
    told = rows(planted.client, "/api/store/gc.json?keep=1")
    assert {(r["name"], r["bytes"]) for r in told} == {
        (w.name, w.size_bytes) for w in wastes
    }
    assert planted.lone in {r["name"] for r in told}
    sizes = [r["bytes"] for r in told]
    assert sizes == sorted(sizes, reverse=True)
    assert "What would go as CSV" in planted.client.get("/store?keep=1").text


def test_a_pass_without_bytes_of_its_own_says_where_they_lie(
    client: TestClient, seen: "Inspected"
) -> None:
    assert "in trunk_shard" in read_page(client.get("/store").text).text
    assert "in trunk_shard" in read_page(client.get("/store?stage=trunk_pass").text).text
    other = read_page(client.get("/store?stage=trunk_shard").text).text
    assert "in trunk_shard" not in other


def test_a_heals_tables_in_use_are_its_reports(
    client: TestClient, seen: "Inspected"
) -> None:
    record = json.loads((seen.root / "runs" / seen.done / "run.json").read_text())
    report = json.loads((seen.root / record["report"] / "report.json").read_text())
    told = rows(client, f"/api/heals/{seen.done}/sampling.json")
    for name in ("stale", "healed"):
        wanted = [
            (
                at["temperature"],
                step["step"],
                step["rows"],
                *(step["sampled"] or (None, None)),
            )
            for at in report["measures"][name]["sampling"]
            for step in at["steps"]
        ]
        found = [
            (r["temperature"], r["step"], r["rows"], r["drawn_low"], r["drawn_high"])
            for r in told
            if r["draft"] == name
        ]
        assert found[: len(wanted)] == wanted
        assert wanted
