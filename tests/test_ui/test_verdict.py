"""The sentence must be true: worked through by hand for every outcome."""

import pytest

from conf.schema import StartKind
from tests.test_ui.sample import codecs, measure, sample_report, training
from ui.answers import answers, best_codec, how_sure, what_next
from ui.contents import Difference, DraftName, Measure, Report
from ui.page import meanings
from ui.verdict import doubts, outcome, verdict


def compare(
    stale: float, healed: float, source: float | None = None, gain: Difference | None = None
) -> Report:
    """A report of these drafts held, one data set's worth of rows each, ± 0.03 or so."""
    measures: dict[DraftName, Measure] = {
        "stale": measure(stale, stale),
        "healed": measure(healed, healed),
    }
    if source is not None:
        measures["source"] = measure(source, source)
    return sample_report(measures=measures, gain=gain, gain_by_set={})


def paired(value: float, se: float) -> Difference:
    return Difference(value=value, se=se, windows=57)


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (
            compare(1.05, 2.01, 2.05, paired(0.96, 0.03)),
            "The draft is back: 1.05 → 2.01 drafts held per round; "
            "before the change it was 2.05.",
        ),
        (
            compare(1.05, 1.55, 2.05, paired(0.5, 0.03)),
            "The draft is partly back: 1.05 → 1.55 drafts held per round; "
            "before the change it was 2.05.",
        ),
        (
            compare(1.05, 2.01, None, paired(0.96, 0.03)),
            "The heal worked: 1.05 → 2.01 drafts held per round.",
        ),
        (
            compare(1.41, 1.44, None, paired(0.03, 0.02)),
            "No clear gain: 1.41 → 1.44 drafts held per round, "
            "a difference that chance alone can make.",
        ),
        (
            compare(2.01, 1.9, 2.05, paired(-0.11, 0.02)),
            "The heal made the draft worse: 2.01 → 1.90 drafts held per round; "
            "keep the stale draft.",
        ),
    ],
)
def test_the_sentence_says_what_the_interval_allows(report: Report, sentence: str) -> None:
    assert verdict(report).text == sentence


def test_a_gain_is_clear_only_beyond_its_own_95_percent() -> None:
    # 1.96 · 0.05 = 0.098
    assert outcome(compare(1.0, 1.1, None, paired(0.099, 0.05))) == "worked"
    assert outcome(compare(1.0, 1.1, None, paired(0.097, 0.05))) == "unclear"
    assert outcome(compare(1.0, 1.1, None, paired(-0.099, 0.05))) == "worse"


def test_one_window_is_no_certainty() -> None:
    lone = Difference(value=1.0, se=0.0, windows=1)
    assert outcome(compare(1.0, 2.0, None, lone)) == "unclear"


def test_unpaired_intervals_that_touch_are_no_gain() -> None:
    assert outcome(compare(1.41, 1.43)) == "unclear"
    assert outcome(compare(1.41, 1.91)) == "worked"
    assert outcome(compare(1.91, 1.41)) == "worse"


def test_a_lone_draft_is_measured_not_judged() -> None:
    report = sample_report(measures={"stale": measure(1.0, 1.0)}, gain=None)
    assert verdict(report).text == (
        "The stale draft holds 1.00 of 3 drafts per round; "
        "there is nothing to compare it with."
    )


def test_no_counted_row_is_said() -> None:
    bare = Measure(drafts_held=0, rows=0, coverage=0)
    report = sample_report(measures={"stale": bare, "healed": bare}, gain=None)
    assert verdict(report).text.startswith("Nothing was measured")


def test_a_control_that_does_as_well_is_held_against_the_heal() -> None:
    measures = {**sample_report().measures, "control": measure(2.05, 1.96)}
    told = doubts(sample_report(measures=measures))
    assert [
        text
        for text in told
        if text.startswith("Healed is not clearly above control, 2.00")
    ]
    assert doubts(sample_report()) == ()


def test_a_control_that_kept_its_start_is_told() -> None:
    measures = sample_report().measures
    idle = {**measures, "control": measures["stale"]}
    (told,) = [t for t in doubts(sample_report(measures=idle)) if "Control" in t]
    assert told.startswith("Control is stale itself: on the source trunk no step")
    moved = {**measures, "control": measure(1.01, 0.99)}
    assert not any("itself" in text for text in doubts(sample_report(measures=moved)))


def test_windows_measured_more_than_once_are_told() -> None:
    assert doubts(sample_report(held_out_copies=14)) == ()  # of 290
    (told,) = doubts(sample_report(held_out_copies=15))
    assert told.replace("\N{NO-BREAK SPACE}", " ") == (
        "Measured more than once: 15 of 290 held-out windows; the true intervals are wider."
    )


def test_a_data_set_that_lost_and_thin_coverage_are_named() -> None:
    losing = sample_report(
        gain_by_set={"code": paired(1.0, 0.03), "prose": paired(-0.2, 0.03)},
        measures={"stale": measure(1.0, 2.0, 0.13), "healed": measure(2.0, 1.8, 0.5)},
    )
    told = doubts(losing)
    assert any("Worse on prose" in text for text in told)
    (thin,) = [text for text in told if "Coverage" in text]
    assert thin.startswith("Coverage is low, of stale 12.0")
    assert "healed" not in thin
    assert how_sure(losing).why.endswith("1 of 2 data sets gain clearly.")


def test_the_codec_is_the_smallest_whose_own_bar_reaches_keep() -> None:
    # q8_row: −0.004 + 0.006 ≥ 0; q4_tiled: −0.061 + 0.011 < 0.
    best = best_codec(codecs())
    assert best is not None
    assert best.codec == "q8_row"
    keep_only = best_codec(codecs()[:1])
    assert keep_only is not None
    assert keep_only.codec == "keep"
    assert best_codec(()) is None


def test_a_best_step_at_the_end_asks_for_more_training() -> None:
    assert what_next(sample_report(training=training(chosen=120))).short == "Train longer"
    told = what_next(sample_report())
    assert told.short == "More text like prose"
    assert not any("Ship" in one.short for one in answers(sample_report()))


def test_no_data_set_is_named_where_chance_could_order_them() -> None:
    alike = {"stale": measure(1.0, 1.0), "healed": measure(2.01, 2.0)}
    assert what_next(sample_report(measures=alike)).short == "Ship it"
    apart = {"stale": measure(1.0, 1.0), "healed": measure(2.3, 2.0)}
    assert what_next(sample_report(measures=apart)).short == "More text like prose"


def test_the_paired_gain_is_told_with_half_its_interval() -> None:
    # 1.959964 · 0.0224 = 0.0439
    assert how_sure(sample_report()).short.replace("\u00a0", " ") == "+0.86 ± 0.04"
    assert len(answers(sample_report())) == 4


def test_no_codec_is_picked_and_no_shipping_advised_for_a_draft_made_worse() -> None:
    worse = compare(2.01, 1.9, 2.05, paired(-0.11, 0.02))
    told = [answer.question for answer in answers(worse)]
    assert "Which codec?" not in told
    assert what_next(worse).short == "Keep the stale draft"


@pytest.mark.parametrize(
    ("start", "said", "meant"),
    [
        ("fresh", "No draft was healed: stale is a new one", "from the trunk's last layer"),
        ("init", "Stale is another model's draft", "another model's draft"),
    ],
)
def test_a_stale_draft_that_never_was_this_models_is_told(
    start: StartKind, said: str, meant: str
) -> None:
    report = compare(0.05, 1.2, None, paired(1.15, 0.03))
    assert not any("tale" in doubt for doubt in doubts(report))
    other = report.model_copy(update={"start": start})
    assert any(doubt.startswith(said) for doubt in doubts(other))
    assert meant in meanings(other)["stale"]
    assert meanings(report)["stale"] == "the same draft on the changed trunk"
