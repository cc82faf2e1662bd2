"""The page of a training against its log read by pyarrow, and live against a checkpoint."""

import json
import math
import re
import shutil
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from tests.test_ui.pages import read_page
from ui.curves import Curve, Point, lines_plot
from ui.inspector import training_data
from ui.inspector.training_data import FACTS

if TYPE_CHECKING:
    from tests.inspected import Inspected

RUNNING, CUT = "b" * 32, "c" * 32


def key_of(seen: "Inspected") -> str:
    return seen.made_by(seen.done, "train_draft")


def log_of(seen: "Inspected") -> list[dict[str, float | None]]:
    path = seen.root / "train_draft" / key_of(seen) / "log.arrow"
    with pa.OSFile(str(path)) as file:
        rows: list[dict[str, float | None]] = pa.ipc.open_file(file).read_all().to_pylist()
    return rows


def rows(
    client: TestClient, key: str, table: str, query: str = ""
) -> list[dict[str, float]]:
    answer = client.get(f"/api/training/train_draft/{key}/{table}.json{query}")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, float]] = answer.json()["rows"]
    return found


def test_its_tables_are_the_log(client: TestClient, seen: "Inspected") -> None:
    log, key = log_of(seen), key_of(seen)
    told = rows(client, key, "steps")
    assert [r["step"] for r in told] == [r["step"] for r in log if r["loss"] is not None]
    for name in ("loss", "lr", "grad_norm"):
        assert [r[name] for r in told] == [r[name] for r in log if r["loss"] is not None]
    evaluated = [r for r in log if r["held"] is not None]
    told = rows(client, key, "evaluations")
    assert [r["drafts_held"] for r in told] == [r["held"] for r in evaluated]
    depth = sum(re.fullmatch(r"kl_\d+", name) is not None for name in log[0])
    assert depth == 2
    for j in range(1, depth + 1):
        assert [r[f"kl_{j}"] for r in told] == [r[f"kl_{j}"] for r in evaluated]
    manifest = json.loads((seen.root / "train_draft" / key / "manifest.json").read_text())
    chosen = [r["step"] for r in told if r["is_chosen"]]
    assert chosen == [manifest["numbers"]["best_step"]]


def test_a_url_zooms_tables_and_plots(client: TestClient, seen: "Inspected") -> None:
    key = key_of(seen)
    inside = rows(client, key, "steps", "?from=4&to=8")
    assert [r["step"] for r in inside] == [4, 5, 6, 7, 8]
    page = read_page(client.get(f"/training/train_draft/{key}?from=4&to=8").text)
    labels = [t.attrs["aria-label"] for t in page.tags if t.attrs.get("role") == "img"]
    (loss,) = [label for label in labels if label.startswith("Loss")]
    assert "at step 4, " in loss
    assert loss.endswith("at step 8")
    links = [t.attrs.get("href", "") for t in page.tags if t.name == "a"]
    (svg,) = [link for link in links if "plots/loss" in link]
    assert svg.endswith(".svg?from=4&to=8")
    answer = client.get(svg)
    assert answer.headers["content-type"] == "image/svg+xml"
    assert loss in answer.text


@pytest.mark.parametrize("query", ["?from=9&to=3", "?from=2000", "?from=-1", "?to=x"])
def test_a_zoom_on_nothing_is_said(
    client: TestClient, seen: "Inspected", query: str
) -> None:
    answer = client.get(f"/training/train_draft/{key_of(seen)}{query}")
    assert answer.status_code in (400, 404)
    assert read_page(answer.text).text


def test_a_zoom_beyond_the_log_offers_the_whole(
    client: TestClient, seen: "Inspected"
) -> None:
    page = client.get(f"/training/train_draft/{key_of(seen)}?from=500&to=600")
    assert page.status_code == 200
    assert "The log has nothing from step 500 to step 600" in page.text


def test_the_kept_checkpoint_has_the_interval_its_measure_has(
    client: TestClient, seen: "Inspected"
) -> None:
    told = rows(client, key_of(seen), "evaluations")
    assert all(r["low_95"] <= r["drafts_held"] <= r["high_95"] for r in told)
    run = json.loads((seen.root / "runs" / seen.done / "run.json").read_text())
    report = json.loads((seen.root / run["report"] / "report.json").read_text())
    (kept,) = [r for r in told if r["is_chosen"]]
    assert [kept["low_95"], kept["high_95"]] == report["measures"]["healed"]["interval"]
    page = client.get(f"/training/train_draft/{key_of(seen)}").text
    assert "paired over windows, 95 %" in read_page(page).text
    assert page.count('<polygon class="healed-b"') == 1  # drafts held alone have them
    assert f"/heal/{seen.cached}" in page  # the newest that rests on it


def test_a_log_of_before_intervals_were_kept_says_so(
    client: TestClient, seen: "Inspected"
) -> None:
    path = seen.root / "train_draft" / RUNNING / "work" / FACTS
    path.write_text(facts(8))
    page = client.get(f"/training/train_draft/{RUNNING}").text
    assert "This training kept no intervals" in read_page(page).text
    assert "healed-b" not in page
    path.write_text(facts(8).replace('"starts"', '"walk_interval": [0.25, 1.75], "starts"'))
    page = client.get(f"/training/train_draft/{RUNNING}").text
    assert "0.25 to 1.75" in read_page(page).text
    assert '<polygon class="healed-b"' in page
    path.unlink()


def facts(steps: int) -> str:
    return json.dumps({
        "tensors": "ckpt.safetensors", "sha256": "0" * 64,
        "facts": {
            "skipped": 3, "loss_scale": 1.0, "refresh_round": 0, "order": [], "place": 0,
            "generator": 0,
            "steps": [
                {"step": s, "loss": 2.0 / s, "lr": 1e-3,
                 "grad_norm": math.nan if s == 2 else 1.0, "kl": [1.0, 2.0], "kind": None}
                for s in range(1, steps + 1)
            ],
            "evaluations": [
                {"step": s, "kl": [1.5 - s / 10, 2.5], "walk": 0.5 + s / 10, "starts": 1.0,
                 "hold_rates": [0.5], "is_best": s <= 4, "kind_kl": []}
                for s in range(0, steps + 1, 4)
            ],
        },
    })  # fmt: skip


def test_a_running_one_is_followed_by_its_checkpoints(
    client: TestClient, seen: "Inspected"
) -> None:
    work = seen.root / "train_draft" / RUNNING / "work"
    page = client.get(f"/training/train_draft/{RUNNING}").text
    assert "No checkpoint is written yet" in page
    assert "data-live" in page
    assert '<progress max="12" value="5"' in page
    for steps in (4, 8):
        (work / FACTS).write_text(facts(steps))
        assert len(rows(client, RUNNING, "steps")) == steps
        page = client.get(f"/training/train_draft/{RUNNING}").text
        assert f"after step {steps}" in read_page(page).text
    assert [r["step"] for r in rows(client, RUNNING, "evaluations") if r["is_chosen"]] == [
        4
    ]
    assert rows(client, RUNNING, "steps")[1]["grad_norm"] is None
    text = read_page(page).text
    assert "went from 0.50 to 0.90 at step 4; that checkpoint is the best so far." in text
    assert "Steps skipped? 3" in text
    assert sorted(path.name for path in work.iterdir()) == [FACTS]
    (work / FACTS).unlink()


def test_a_cut_one_shows_its_last_checkpoint(client: TestClient, seen: "Inspected") -> None:
    work = seen.root / "train_draft" / CUT / "work"
    work.mkdir(parents=True)
    (work / FACTS).write_text(facts(8))
    page = client.get(f"/training/train_draft/{CUT}").text
    assert "It was cut off after step 8" in page
    assert "data-live" not in page
    shutil.rmtree(work.parent)


@pytest.mark.parametrize("text", ["{", "[]", '{"facts": {"steps": "<script>"}}'])
def test_a_damaged_checkpoint_is_said_and_progress_stays(
    client: TestClient, seen: "Inspected", text: str
) -> None:
    path = seen.root / "train_draft" / RUNNING / "work" / FACTS
    path.write_text(text)
    page = client.get(f"/training/train_draft/{RUNNING}")
    assert page.status_code == 200
    assert "cannot be read; a run that resumes from it" in read_page(page.text).text
    assert '<progress max="12" value="5"' in page.text
    assert "<script>" not in page.text
    path.unlink()


def test_a_huge_checkpoint_is_not_read(
    client: TestClient, seen: "Inspected", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_data, "LARGEST_FACTS_BYTES", 100)
    path = seen.root / "train_draft" / RUNNING / "work" / FACTS
    path.write_text(facts(4))
    page = read_page(client.get(f"/training/train_draft/{RUNNING}").text)
    assert "too many to follow live" in page.text
    path.unlink()


def test_damaged_missing_and_other_stages_are_clear_pages(
    client: TestClient, seen: "Inspected"
) -> None:
    assert client.get(f"/training/{seen.damaged}").status_code == 410
    assert client.get(f"/training/train_draft/{'9' * 32}").status_code == 404
    assert client.get("/training/train_draft/..%2F..").status_code == 404
    other = client.get(f"/training/measure_draft/{seen.key('measure_draft')}")
    assert other.status_code == 404
    assert "Only a train_draft is a training" in other.text
    api = client.get(f"/api/training/train_draft/{key_of(seen)}/plots/kinds.svg")
    assert api.status_code == 404
    assert "there are: held" in api.json()["error"]


def test_lines_of_a_family_are_named_at_their_ends_apart() -> None:
    curves = [
        Curve(str(j), tuple(Point(s, 1.0 + j / 1000 + s) for s in range(3)), end=4)
        for j in (1, 2, 3)
    ]
    drawn = lines_plot(curves)
    found = re.findall(
        r'<text class="ink" x="50.00%" y="([\d.-]+)" dx="6">(\d)</text>', drawn
    )
    heights = sorted(float(y) for y, _ in found)
    assert sorted(name for _, name in found) == ["1", "2", "3"]
    assert all(b - a >= 12.9 for a, b in pairwise(heights))
