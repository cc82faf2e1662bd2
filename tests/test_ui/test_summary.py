"""The short forms, line by line."""

from tests.test_ui.sample import measure, sample_report
from ui.summary import summary_markdown, summary_text


def test_the_terminal_gets_verdict_certainty_and_a_line_a_draft() -> None:
    lines = summary_text(sample_report()).splitlines()
    assert lines[0].startswith("The draft is back: 1.15 → 2.00")
    assert lines[1].startswith(
        "+0.86 ± 0.04, 95 % interval, paired over 290 held-out windows"
    )
    assert "          healed   2.05      2.01–2.09       2.16  3,213    41.0 %" in lines
    assert lines[-2:] == [
        "  code: 2.11 → 1.01 → 2.05 (control 0.98, fresh 1.44)",
        "  prose: 1.92 → 1.28 → 1.96 (control 1.25, fresh 1.31)",
    ]
    assert not any("\u00a0" in line or line != line.rstrip() for line in lines)


def test_the_terminal_sees_no_control_characters_of_a_name() -> None:
    whole = measure(1.0, 2.0)
    evil = {"\x1b[31mred\nline": whole.by_set["code"], "b": whole.by_set["prose"]}
    report = sample_report(
        measures={"healed": whole.model_copy(update={"by_set": evil})}, gain=None
    )
    text = summary_text(report)
    assert "\x1b" not in text
    assert "red line: 1.00" in text


def test_only_what_was_measured_is_told() -> None:
    pair = {"stale": measure(1.0, 1.0), "healed": measure(2.0, 2.0)}
    text = summary_text(sample_report(measures=pair))
    assert "all data: 1.00 → 2.00\n" in text
    assert "control" not in text


def test_markdown_tables_have_equal_rows_and_hostile_names_stay_text() -> None:
    whole = measure(1.0, 2.0)
    evil = {"a|b<img>`c`\nd": whole.by_set["code"], "plain": whole.by_set["prose"]}
    report = sample_report(
        measures={"healed": whole.model_copy(update={"by_set": evil})},
        gain=None,
        command="heal run ```",
    )
    text = summary_markdown(report)
    assert "| a\\|b&lt;img>\\`c\\` d | healed | 1.00 |" in text
    assert "````sh\nheal run ```\n````" in text


def test_markdown_tells_the_codecs() -> None:
    text = summary_markdown(sample_report()).replace("\u00a0", " ")
    assert "| q8\\_row | 598 kB | 3.35 MB | 2.001 | −0.004 ± 0.006 |" in text
