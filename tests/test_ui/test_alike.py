"""Rows of a list that look alike, and inputs of a stage: what tells them apart."""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.testclient import TestClient

from tests.test_ui.pages import read_page
from ui.inspector.alike import NO_BREAK, differing
from ui.inspector.heal_list import Asked, Heal, asked_for, short_reason

if TYPE_CHECKING:
    from tests.inspected import Inspected

ARTIFACT = "/s/fold_model/91b2e7444854522a6bce828ee4cbc95f/model.cmf"


def heal(name: str, title: str, **settings: str) -> Heal:
    asked = Asked(title, (), "", "", {k.replace("__", "."): v for k, v in settings.items()})
    return Heal(
        id=name, state="done", note="", asked=asked, command="", config="",
        started=datetime.now(UTC), took_s=None, run=None, report_key=None, report=None,
    )  # fmt: skip


def told(*heals: Heal) -> dict[str, str]:
    return {name: text.replace(NO_BREAK, " ") for name, text in differing(heals).items()}


def test_only_what_differs_among_a_models_heals_is_told() -> None:
    found = told(
        heal("a", "m", train__lr="0.1", train__steps="8", runtime__threads="1"),
        heal("b", "m", train__lr="0.2", train__steps="8", runtime__threads="2"),
        heal("c", "other", train__lr="0.3"),
    )
    assert found == {"a": "lr 0.1", "b": "lr 0.2", "c": ""}


def test_training_comes_first_paths_are_short_and_the_rest_is_counted() -> None:
    first = heal("a", "m", student=ARTIFACT, pack__seed="1", train__seed="2", x="1", y="1")
    other = heal("b", "m", student="/q", pack__seed="2", train__seed="3", x="2", y="2")
    assert told(first, other) == {
        "a": "train.seed 2, student fold_model/91b2e744, pack.seed 1, 2 more",
        "b": "train.seed 3, student /q, pack.seed 2, 2 more",
    }


def test_a_long_value_keeps_its_head_and_a_long_path_its_end() -> None:
    found = told(
        heal("a", "m", student="/d" * 40 + "/x.cmf", z="v" * 40), heal("b", "m", z="w")
    )
    assert found["a"] == f"z {'v' * 27}…"
    found = told(heal("a", "m", student="/d" * 40 + "/x.cmf"), heal("b", "m", student="y"))
    assert found["a"].endswith("/d/x.cmf")
    assert found["a"].startswith("student …")


def test_a_configuration_that_holds_itself_has_no_settings() -> None:
    assert asked_for("&a {student: s.cmf, again: *a}", "x").settings == {}
    assert asked_for("heal: {train: {lr: 0.5}}", "x").settings["train.lr"] == "0.5"


def test_a_long_reason_ends_after_a_word() -> None:
    cut = short_reason("word " * 60)
    assert cut.endswith("word …")
    assert len(cut) <= 142
    assert short_reason("short\nsecond line") == "short"
    assert short_reason("") == ""


def test_the_list_names_runs_settings_and_origins(
    client: TestClient, seen: "Inspected"
) -> None:
    rows = {row["id"]: row for row in client.get("/api/heals.json").json()["rows"]}
    assert "steps\u00a016" in rows[seen.longer]["differs"]
    assert "steps\u00a016" not in rows[seen.done]["differs"]
    assert rows[seen.cached]["note"] == f"same as {seen.done.rpartition('-')[2]}"
    assert rows[seen.cut]["note"].endswith("which is saved; resumes")
    assert rows[seen.done]["codec_to_ship"] in {"keep", "q8_row"}
    page = read_page(client.get("/").text).text
    for run in (seen.done, seen.cached, seen.longer):
        assert run.rpartition("-")[2] in page


def test_the_depth_to_draft_is_told_against_the_deepest_measured(
    client: TestClient, seen: "Inspected"
) -> None:
    depths = client.get(f"/api/heals/{seen.done}/depth.json").json()["rows"]
    deepest = max(int(row["depth"]) for row in depths)
    answer = client.get(f"/heal/{seen.done}").text.partition("Draft how deep?")[2]
    told = re.search(r"<b>(\d+)(, the deepest| of the (\d+)) measured</b>", answer)
    assert told is not None
    assert int(told[3] or told[1]) == deepest


def test_a_stage_says_which_model_file_an_input_is(
    client: TestClient, seen: "Inspected"
) -> None:
    key = seen.made_by(seen.done, "train_draft")
    page = client.get(f"/stage/train_draft/{key}").text
    assert "the trunk of model file" in page
    assert "no artifact" not in page
    table = client.get(f"/api/artifacts/train_draft/{key}/inputs.json").json()["rows"]
    files = {row["name"]: row["file"] for row in table}
    assert files["trunk"].endswith(".cmf")
    assert files["windows"] is None
    assert re.search(r'rewrite_model</code>.*?<span class="quiet">(keep|q8_row), ', page)
