"""Two heals side by side, against reports read as plain JSON and sums worked by hand."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from tests.inspected import HOSTILE
from tests.test_ui.pages import compared_rows, read_page
from tests.test_ui.sample import measure, sample_report
from ui.contents import Report
from ui.inspector.compare_data import (
    Comparison,
    Value,
    between,
    caveats,
    held_rows,
    setting_rows,
)
from ui.inspector.compare_view import sentence
from ui.inspector.heal_list import Asked, Heal

if TYPE_CHECKING:
    from tests.inspected import Inspected


def report_of(seen: "Inspected", run: str) -> dict[str, Any]:
    record = json.loads((seen.root / "runs" / run / "run.json").read_text())
    found: dict[str, Any] = json.loads(
        (seen.root / record["report"] / "report.json").read_text()
    )
    return found


def heal(name: str, report: Report | None, config: str = "") -> Heal:
    return Heal(
        id=name, state="done", note="", asked=Asked(name, (), "exact", "tail_kl"),
        command="", config=config, started=datetime(2026, 12, 1, tzinfo=UTC), took_s=1.0,
        run=None, report_key=None, report=report,
    )  # fmt: skip


def said(pair: Comparison) -> str:
    return "".join(text for _, text in sentence(pair)).replace("\u00a0", " ")


def test_two_heals_stand_beside_each_other(client: TestClient, seen: "Inspected") -> None:
    a, b = (report_of(seen, run)["measures"] for run in (seen.done, seen.longer))
    told = compared_rows(client, "drafts", f"a={seen.done}&b={seen.longer}")
    assert {row["draft"] for row in told} == {"stale", "healed"}
    for row in told:
        one, two = a[row["draft"]], b[row["draft"]]
        assert (row["a_value"], row["b_value"]) == (one["drafts_held"], two["drafts_held"])
        assert [row["a_low_95"], row["a_high_95"]] == one["interval"]
        assert (row["a_rows"], row["b_rows"]) == (one["rows"], two["rows"])
        assert row["is_paired"] is True
    page = client.get(f"/compare?pick={seen.done}&pick={seen.longer}")
    assert page.status_code == 200
    read_page(page.text)
    assert f'href="/heal/{seen.done}"' in page.text


def test_settings_that_differ_are_those_alone(
    client: TestClient, seen: "Inspected"
) -> None:
    told = compared_rows(client, "settings", f"a={seen.done}&b={seen.longer}")
    assert told == [{"setting": "train.steps", "a": "12", "b": "16"}]
    assert compared_rows(client, "settings", f"a={seen.done}&b={seen.cached}") == []


def test_one_heal_is_compared_before_and_after_by_its_own_pairing(
    client: TestClient, seen: "Inspected"
) -> None:
    report = report_of(seen, seen.done)
    (row,) = compared_rows(client, "drafts", f"a={seen.done}")
    assert row["a_value"] == report["measures"]["stale"]["drafts_held"]
    assert row["b_value"] == report["measures"]["healed"]["drafts_held"]
    assert row["difference"] == report["gain"]["value"]
    assert row["half_width_95"] == pytest.approx(1.959964 * report["gain"]["se"])
    assert row["is_paired"] is True
    page = client.get(f"/compare?a={seen.done}")
    assert "differences here and below are paired over them" in page.text
    assert "Settings that differ" not in page.text


@pytest.mark.parametrize(
    "table",
    ["settings", "drafts", "steps", "rounds", "speed", "sampling", "codecs", "stages"],
)
def test_tables_and_plots_download(
    client: TestClient, seen: "Inspected", table: str
) -> None:
    query = f"a={seen.done}&b={seen.longer}"
    lines = client.get(f"/api/compare/{table}.csv?{query}").text.splitlines()
    assert len(lines) == 1 + len(compared_rows(client, table, query)) > 1
    for plot in ("held", "kl", "loss", "speed"):
        answer = client.get(f"/api/compare/plots/{plot}.svg?{query}")
        assert answer.status_code == 200
        assert answer.text.count("polyline") >= 2


def test_without_a_choice_it_offers_one(client: TestClient, seen: "Inspected") -> None:
    page = read_page(client.get("/compare").text)
    options = [t.attrs["value"] for t in page.tags if t.name == "option"]
    assert {seen.done, seen.failed, seen.running} <= set(options)


def test_heals_without_measures_are_compared_as_far_as_they_go(
    client: TestClient, seen: "Inspected"
) -> None:
    for run in (seen.failed, seen.running, seen.cut):
        page = client.get(f"/compare?a={seen.done}&b={run}")
        assert page.status_code == 200
        assert "B has no measures to compare" in page.text
        assert HOSTILE not in page.text
        assert client.get(f"/compare?a={run}").status_code == 200
    assert compared_rows(client, "drafts", f"a={seen.failed}&b={seen.cut}") == []
    assert (
        "alert(&#39;x&#39;)" in client.get(f"/compare?a={seen.done}&b={seen.failed}").text
    )


def test_unknown_and_too_many_are_clear_pages(
    client: TestClient, seen: "Inspected"
) -> None:
    assert client.get("/compare?a=nothing").status_code == 404
    assert client.get(f"/compare?a={seen.done}&b=..%2F..").status_code == 404
    picks = "&".join(f"pick={run}" for run in (seen.done, seen.longer, seen.failed))
    answer = client.get(f"/compare?{picks}")
    assert answer.status_code == 404
    assert "Two heals at most" in answer.text
    assert client.get(f"/api/compare/nothing.csv?a={seen.done}").status_code == 400
    plot = client.get(f"/api/compare/plots/kl.svg?a={seen.failed}&b={seen.cut}")
    assert plot.status_code == 404


def test_the_sentence_is_never_kinder_than_its_interval() -> None:
    base = sample_report()
    measures = {**base.measures, "healed": measure(2.25, 2.0)}
    a, better = heal("a", base), heal("b", sample_report(measures=measures))
    assert said(Comparison(a, better)).startswith("B holds more: B 2.1")
    assert said(Comparison(better, a)).startswith("A holds more: A 2.1")
    measures = {**base.measures, "healed": measure(2.06, 1.97)}
    near = heal("b", sample_report(measures=measures))
    assert said(Comparison(a, near)).startswith("No clear difference: A 2.0")
    whole = said(Comparison(a, a))
    assert whole.startswith("The healed draft holds more: 2.00 against 1.1")
    assert "healed − stale: +0.86 ± 0.04" in whole
    assert "no measures of both" in said(Comparison(a, heal("c", None)))
    bare = base.measures["healed"].model_copy(update={"interval": None})
    open_ended = heal("d", sample_report(measures={**base.measures, "healed": bare}))
    assert said(Comparison(a, open_ended)).startswith("Without intervals nobody can say")


def test_a_difference_of_unpaired_rows_adds_variances() -> None:
    a = Value("healed", 2.0, (1.7, 2.3), 10)
    b = Value("healed", 2.6, (2.2, 3.0), 10)
    found = between(a, b)
    assert found is not None
    assert found.value == pytest.approx(0.6)
    assert found.half_width == pytest.approx(0.5)  # 3, 4, 5
    assert found.is_clear
    assert between(a, None) is None


def test_every_set_of_either_is_told() -> None:
    base = sample_report()
    titles = [row.title for row in held_rows(Comparison(heal("a", base), heal("b", base)))]
    assert list(dict.fromkeys(titles)) == ["all data", "code", "prose"]
    before = held_rows(Comparison(heal("a", base), heal("a", base)))
    assert [row.between.value for row in before if row.between] == [0.86, 1.04, 0.68]


def test_what_does_not_compare_is_said() -> None:
    base = sample_report()
    other = sample_report(depth=5, provenance={**base.provenance, "trunk": "ee" * 32})
    told = " ".join(caveats(Comparison(heal("a", base), heal("b", other))))
    assert "Rounds of 3 drafts in A, of 5 in B" in told
    assert "trunks differ" in told
    assert "data differ" not in told


@pytest.mark.parametrize(
    "config",
    ["a: [", "- 1", "a: &x [*x]", "a: &x {b: 1}\nc: *x", "? [1, 2]\n: 3", "a: 2020-01-01"],
)
def test_odd_configurations_are_no_error(config: str) -> None:
    pair = Comparison(heal("a", None, config), heal("b", None, "a: .nan"))
    found, _ = setting_rows(pair)
    assert "a" in [row.name for row in found]
