"""What lies between two heals on the same windows, against the counts of their flags."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from starlette.testclient import TestClient

from nets.hold import HoldCounts, count_walk, paired_gain_se
from nets.hold_views import to_depth
from store.artifact import Artifact
from store.store import Store
from tasks.measure import read_holds
from tests.test_ui.pages import compared_rows, read_page
from ui.inspector import pairing
from ui.inspector.sums import TABLE, Pair, Sums, read_sums

if TYPE_CHECKING:
    from tests.inspected import Inspected


def measured(seen: "Inspected", run: str, label: str) -> Artifact:
    """The measure that a run asked for under a label."""
    record = json.loads((seen.root / "runs" / run / "run.json").read_text())
    (key,) = {
        event["key"]
        for event in record["events"]
        if event["name"] == "measure_draft" and event["label"].startswith(label)
        and event["label"] != "healed q8_row"
    }  # fmt: skip
    found = Store(seen.root).load("measure_draft", key)
    assert found is not None
    return found


def counts(seen: "Inspected", run: str, depth: int = 2) -> HoldCounts:
    return count_walk(to_depth(read_holds(measured(seen, run, "healed")), depth))


def test_heals_of_the_same_windows_are_paired(
    client: TestClient, seen: "Inspected"
) -> None:
    query = f"a={seen.done}&b={seen.longer}"
    (row,) = [r for r in compared_rows(client, "drafts", query) if r["draft"] == "healed"]
    se = paired_gain_se(counts(seen, seen.longer), counts(seen, seen.done))
    assert row["half_width_95"] == pytest.approx(1.959964 * se)
    same = [r for r in compared_rows(client, "drafts", query) if r["draft"] == "stale"]
    assert [(r["difference"], r["half_width_95"]) for r in same] == [(0.0, 0.0)]
    page = client.get(f"/compare?{query}")
    assert "held-out windows, so differences here and below are paired" in page.text
    read_page(page.text)


def test_a_pair_of_sums_is_as_sure_as_the_counts_of_its_flags(seen: "Inspected") -> None:
    stale, healed = (measured(seen, seen.done, label) for label in ("stale", "healed"))
    temperatures = len(stale.manifest.settings["temperatures"])
    sums = [read_sums(one.path / TABLE, temperatures) for one in (stale, healed)]
    for depth in (1, 2):
        new, old = (count_walk(to_depth(read_holds(one), depth)) for one in (healed, stale))
        se = paired_gain_se(new, old)
        assert se > 0
        assert Pair(*sums).held(depth) == pytest.approx(1.959964 * se)


def test_speed_is_what_the_drafts_of_each_depth_are_worth(
    client: TestClient, seen: "Inspected"
) -> None:
    query = f"a={seen.done}&b={seen.longer}&verify=1.5&draft=0.25"
    told = {
        r["depth"]: r
        for r in compared_rows(client, "speed", query)
        if r["draft"] == "healed"
    }
    assert set(told) == {1, 2}
    for depth, row in told.items():
        new, old = (counts(seen, run, depth) for run in (seen.longer, seen.done))
        cost = 1.5 + 0.25 * depth
        half = 1.959964 * paired_gain_se(new, old) / cost
        assert row["half_width_95"] == pytest.approx(half)
        held = measured(seen, seen.longer, "healed").numbers["by_depth"][depth]
        assert row["b_value"] == pytest.approx((1 + held["drafts_held"]) / cost)


def test_shares_of_rounds_are_those_that_the_counts_give(
    client: TestClient, seen: "Inspected"
) -> None:
    query = f"a={seen.done}&b={seen.longer}"
    told = [r for r in compared_rows(client, "rounds", query) if r["draft"] == "healed"]
    assert [r["held"] for r in told] == [0, 1, 2]
    assert sum(r["a_value"] for r in told) == pytest.approx(1.0)
    found = counts(seen, seen.done)
    missed = 1 - found.hit_WC[:, 0].sum() / found.counted_WC[:, 0].sum()
    assert told[0]["a_value"] == pytest.approx(missed)
    assert all(r["a_low_95"] <= r["a_value"] <= r["a_high_95"] for r in told)


def test_acceptance_is_told_by_temperature_with_its_difference(
    client: TestClient, seen: "Inspected"
) -> None:
    told = compared_rows(client, "sampling", f"a={seen.done}&b={seen.longer}")
    assert {r["tokens"] for r in told} == {"drawn", "first"}
    assert all(r["is_paired"] is (r["difference_low"] is not None) for r in told)
    assert any(r["is_paired"] for r in told)
    healed = measured(seen, seen.longer, "healed").numbers["sampling"]
    by_place = {(at["temperature"], s["step"]): s for at in healed for s in at["steps"]}
    mine = [r for r in told if r["draft"] == "healed" and r["tokens"] == "drawn"]
    assert {(r["temperature"], r["step"]) for r in mine} == set(by_place)
    for row in mine:
        said = by_place[row["temperature"], row["step"]]
        assert [row["b_low"], row["b_high"]] == said["sampled"]
        assert row["difference_low"] == pytest.approx(row["b_low"] - row["a_high"])
        assert row["difference_low_95"] <= row["difference_low"] + 1e-9
        assert row["difference_high"] <= row["difference_high_95"] + 1e-9
    stale = [r for r in told if r["draft"] == "stale" and r["is_paired"]]
    stale = [r for r in stale if r["a_low"] == r["a_high"]]
    assert stale
    ends = [(r["difference_low_95"], r["difference_high_95"]) for r in stale]
    assert ends == [pytest.approx((0.0, 0.0))] * len(stale)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("_same_windows", lambda a, b: False, "not measured on the same windows"),
     ("TABLE", "never.arrow", "has not kept what counted in each window")],
)  # fmt: skip
def test_what_cannot_be_paired_says_why(
    client: TestClient, seen: "Inspected", monkeypatch: pytest.MonkeyPatch,
    name: str, value: object, said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(pairing, name, value)
    query = f"a={seen.done}&b={seen.longer}"
    assert said in read_page(client.get(f"/compare?{query}").text).text
    for table in ("drafts", "steps", "rounds", "speed", "sampling"):
        assert not any(r["is_paired"] for r in compared_rows(client, table, query))
    (row,) = [r for r in compared_rows(client, "drafts", query) if r["draft"] == "healed"]
    sides = [(row[f"{s}_high_95"] - row[f"{s}_low_95"]) / 2 for s in "ab"]
    assert row["half_width_95"] == pytest.approx(float(np.hypot(*sides)))


def test_a_gain_alike_in_every_window_has_no_spread() -> None:
    counted = np.full((6, 1, 1), 10)
    accepted = np.full((6, 1, 1, 4), 3.0)
    a = Sums(np.arange(6), np.zeros(6, int), counted, counted - 6, counted[:, 0], accepted)
    b = Sums(np.arange(6), np.zeros(6, int), counted, counted - 4, counted[:, 0], accepted)
    assert Pair(a, b).held(1) == pytest.approx(0.0)
    assert Pair(a, b).rounds() == pytest.approx((0.0, 0.0))
    assert Pair(a, b).accepted((0, 0), 1, 0) == pytest.approx((0.0, 0.0))
    uneven = Sums(b.window_W, b.set_W, counted, counted - np.arange(6)[:, None, None],
                  b.starts_WC, accepted)  # fmt: skip
    assert Pair(a, uneven).held(1) > 0.05


def test_sums_of_another_shape_are_not_paired(
    client: TestClient, seen: "Inspected", tmp_path: Path
) -> None:
    path = measured(seen, seen.done, "healed").path / TABLE
    kept = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(b"no table")
    page = client.get(f"/compare?a={seen.done}&b={seen.longer}")
    path.write_bytes(kept)
    assert page.status_code == 200
