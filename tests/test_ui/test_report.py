"""The page as a reader and a browser get it."""

import base64
import hashlib
import re

import pytest
from pydantic import ValidationError

from tests.test_ui.pages import Page, Tag, read_page
from tests.test_ui.sample import CONFIG, measure, probe, sample_report
from ui.contents import (
    CodecRow,
    Measure,
    Rate,
    Report,
    SetMeasure,
    StageRow,
    Training,
    TrainingRow,
)
from ui.report import render, report_json

ATTACK = "</script></style><script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;"


def bare() -> Report:
    """The least a report can hold."""
    lone = Measure(drafts_held=1.0, rows=0)
    return sample_report(
        measures={"healed": lone}, gain=None, gain_by_set={}, training=None,
        probe=None, codecs=(), provenance={}, stages=(), machine={}, config="", run="",
    )  # fmt: skip


def hostile() -> Report:
    """Every string of a report made an attack."""
    name = ATTACK
    whole = measure(1.0, 2.0)
    sets = {name: whole.by_set["code"], "two": whole.by_set["prose"]}
    evil = whole.model_copy(update={"by_set": sets})
    return sample_report(
        title=name, run=name, command=name, config=name, machine={name: name},
        provenance={name: [name, {"name": name, name: None}]},
        measures={"stale": evil, "healed": evil}, gain_by_set={},
        codecs=(CodecRow(codec=name, draft_bytes=1, file_bytes=2, drafts_held=1.0),),
        stages=(StageRow(name=name, key=name, state="ran", seconds=1.0, label=name),),
    )  # fmt: skip


@pytest.fixture(scope="module", params=[sample_report, bare, hostile])
def page(request: pytest.FixtureRequest) -> Page:
    return read_page(render(request.param()))


def test_nothing_is_loaded_and_nothing_runs(page: Page) -> None:
    for tag in page.tags:
        assert tag.name not in {"script", "iframe", "object", "embed", "img", "base"}
        for name, value in tag.attrs.items():
            assert not name.startswith("on"), f"<{tag.name}> has a handler {name}"
            assert name not in {"src", "srcset", "style", "action", "ping"}, tag
            if name in {"href", "xlink:href"}:
                assert value.startswith("#") or value == "data:,", tag
    assert not re.search(r"url\(|@import|https?:|expression\(", page.css)


def test_the_policy_allows_the_one_style_sheet_and_nothing_else(page: Page) -> None:
    policies = [t.attrs["content"] for t in page.tags if "http-equiv" in t.attrs]
    digest = base64.b64encode(hashlib.sha256(page.css.encode()).digest()).decode()
    assert len(policies) == 1
    assert policies[0].startswith(f"default-src 'none'; style-src 'sha256-{digest}'; ")
    assert "unsafe" not in policies[0]
    assert [t.name for t in page.tags].count("style") == 1


def test_ids_are_single_and_links_inside_the_page_lead_somewhere(page: Page) -> None:
    ids = [tag.attrs["id"] for tag in page.tags if "id" in tag.attrs]
    assert len(ids) == len(set(ids))
    targets = {
        t.attrs["href"][1:] for t in page.tags if t.attrs.get("href", "").startswith("#")
    }
    assert targets <= set(ids)


def test_every_plot_has_a_name_or_is_hidden(page: Page) -> None:
    plots = [tag for tag in page.tags if tag.name == "svg" and "svg" not in tag.parents]
    assert plots
    for plot in plots:
        named = (
            plot.attrs.get("role") == "img" and len(plot.attrs.get("aria-label", "")) > 5
        )
        assert named or plot.attrs.get("aria-hidden") == "true", plot


def test_every_number_in_an_attribute_is_finite(page: Page) -> None:
    for tag in page.tags:
        for name, value in tag.attrs.items():
            assert not re.search(r"\b(nan|inf)\b", value, re.IGNORECASE), (tag.name, name)


def test_regions_that_scroll_take_focus_and_have_a_name(page: Page) -> None:
    for tag in page.tags:
        if set(tag.attrs.get("class", "").split()) & {"scroll", "code"}:
            assert tag.attrs.get("tabindex") == "0"
            assert tag.attrs.get("aria-label")


def test_hostile_strings_are_shown_as_they_are() -> None:
    page = read_page(render(hostile()))
    assert page.text.count("<script>alert(1)</script>") >= 10
    assert any(ATTACK in tag.attrs.get("aria-label", "") for tag in page.tags)


def test_the_answer_comes_first_and_the_command_last() -> None:
    text = read_page(render(sample_report())).text
    order = [
        text.index(words)
        for words in (
            "The draft is back: 1.15 → 2.00 drafts held per round",
            "+0.86 ± 0.04 95 % interval, paired over 290 held-out windows",
            "By starts averages",
            "Step j counts",
            "The checkpoint of step 100 was kept",
            "Each file was written, opened again",
            "train_draft healed",
            "heldout kl start",
            "heal run conf/demo.yaml --set train.lr=0.002",
            " ".join(CONFIG.split()),
        )
    ]
    assert order == sorted(order)


def test_every_draft_has_its_interval_rows_and_coverage_on_every_set() -> None:
    text = read_page(render(sample_report())).text
    # code, healed: 2.05 ± 2.2/√3213 = 0.0388; 9,800 / 3.05 rows, written out by hand
    assert "healed 2.05 2.01–2.09 2.16 3,213 41.0" in text
    assert "source 1.92 1.88–1.96 2.03 3,048 38.0" in text
    assert text.count("control") >= 4


def test_a_mark_stands_where_its_value_is() -> None:
    page = read_page(render(sample_report()))
    hero = next(
        i for i, t in enumerate(page.tags) if "of 3 drafts" in t.attrs.get("aria-label", "")
    )
    inner = [t for t in page.tags[hero + 1 :] if t.name == "svg"][:1]
    # stale 1.145 of 3 on an axis from 0 to 3
    assert [t.attrs["x"] for t in inner] == ["38.17%"]


def test_the_chosen_checkpoint_is_ringed_in_both_evaluated_plots() -> None:
    page = read_page(render(sample_report()))
    rings = [t for t in page.tags if t.attrs.get("class") == "ring" and "cy" in t.attrs]
    plots = [t for t in rings if t.attrs["cx"].endswith("%")]
    # step 100 of 120
    assert [ring.attrs["cx"] for ring in plots] == ["83.33%", "83.33%"]


def test_one_data_set_is_told_once() -> None:
    whole = measure(1.0, 1.0)
    single = whole.model_copy(update={"by_set": {"code": whole.by_set["code"]}})
    text = read_page(render(sample_report(measures={"healed": single}, gain=None))).text
    assert "all data" not in text


def test_a_training_without_steps_or_with_skipped_ones_still_draws() -> None:
    rows = (
        TrainingRow(step=0, kl=2.0, held=1.0),
        TrainingRow(step=1, lr=1e-5),
        TrainingRow(step=2, lr=0.0, loss=1.0),
    )
    for part in (rows, rows[:1], ()):
        report = sample_report(training=Training(rows=part, chosen_step=0, skipped=1))
        page = read_page(render(report))
        assert "Skipped, since not finite: 1 training step." in page.text


def test_the_json_reads_back_and_has_the_words_scripts_read() -> None:
    report = sample_report()
    text = report_json(report)
    assert Report.model_validate_json(text) == report
    healed = report.model_dump(mode="json")["measures"]["healed"]
    wanted = {
        "drafts_held",
        "drafts_held_starts",
        "interval",
        "rows",
        "coverage",
        "hold_rates",
        "tokens_a_round",
        "hold_rates_starts",
        "by_position",
        "by_depth",
        "best_of",
        "sampling",
        "sampled_chains",
        "vocabulary",
    }
    assert wanted | {"by_set", "windows"} == set(healed)


def test_rendering_twice_gives_the_same_page() -> None:
    again = Report.model_validate_json(report_json(sample_report()))
    assert render(again) == render(sample_report())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: SetMeasure(drafts_held=1.0, rows=3, interval=(2.0, 1.0)),
            "runs backwards",
        ),
        (lambda: Rate(step=1, rate=float("nan"), rows=3), "finite"),
        (lambda: Rate(step=0, rate=0.5, rows=3), "greater than or equal to 1"),
        (lambda: Measure(drafts_held=float("inf"), rows=3), "finite"),
    ],
)
def test_figures_that_cannot_be_are_refused(make: object, words: str) -> None:
    assert callable(make)
    with pytest.raises(ValidationError, match=words):
        make()


def test_tags_are_read_with_their_parents() -> None:
    """The reader itself, against a literal."""
    read = read_page('<p class="a"><b>x</b></p>')
    assert read.tags == [Tag("p", {"class": "a"}, ()), Tag("b", {}, ("p",))]
    with pytest.raises(AssertionError, match="closes"):
        read_page("<p><b></p></b>")


def test_the_wiring_used_is_marked_among_what_was_probed() -> None:
    page = read_page(render(sample_report()))
    assert "Read as hidden raw, chain raw: it names more of the trunk’s tokens" in page.text
    assert "raw / raw / embedding used 46.8 41.7 40.1 1.286 best" in page.text
    assert "normed / raw / embedding 41.8 41.5 39.2 1.225 0.018–0.105" in page.text
    assert "targets of another window 1.1 1.5 1.5" in page.text
    assert "all 1,020 rows of 4 training windows" in page.text


def test_without_a_probe_there_is_no_section_of_it() -> None:
    page = read_page(render(bare()))
    assert "wiring" not in {tag.attrs.get("id") for tag in page.tags}


def test_readings_as_good_as_each_other_are_told_so() -> None:
    same = probe().model_copy(update={"outcome": "same"})
    page = read_page(render(sample_report(probe=same)))
    assert "are within 2 % of each other" in page.text
