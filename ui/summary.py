"""The report in a few lines: plain text for a terminal, markdown for a model card."""

from collections.abc import Sequence

from ui.answers import how_sure
from ui.contents import DraftName, Report, SetMeasure
from ui.figures import NO_BREAK, count, fixed, percent_sign, size, span, with_error
from ui.page import on_sets
from ui.verdict import doubts, verdict

STORY: tuple[DraftName, ...] = ("source", "stale", "healed")
HEADS = ("data", "draft", "held", "95 % interval", "by starts", "rows", "coverage")


def summary_text(report: Report) -> str:
    """Verdict, how sure, a line for each draft and data set; plain spaces, no colours."""
    sure = how_sure(report)
    prose = [verdict(report).text, f"{sure.short}, {sure.why}", *doubts(report)]
    lines = [*map(_printable, prose), ""]
    rows = [HEADS, *_rows(report)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADS))]
    for i, row in enumerate(rows):
        if i > 1 and row[0]:
            lines.append("")
        cells = [
            text.ljust(width) if place < 2 else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines += ["", "Drafts held per round:"]
    lines += [
        f"  {_printable(title)}: {story(by_draft)}" for title, by_draft in on_sets(report)
    ]
    # A terminal's grep and copy do not take a no-break space for a space.
    return "\n".join(lines).replace(NO_BREAK, " ") + "\n"


def _printable(text: str) -> str:
    """One line without control characters: a name must not drive the terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def story(by_draft: dict[DraftName, SetMeasure]) -> str:
    """`2.11 → 1.01 → 2.05 (control 0.98, fresh 1.44)`; the unmeasured is left out."""
    told = " → ".join(
        fixed(by_draft[name].drafts_held) for name in STORY if name in by_draft
    )
    beside = ", ".join(
        f"{name} {fixed(by_draft[name].drafts_held)}"
        for name in ("control", "fresh")
        if name in by_draft
    )
    return f"{told} ({beside})" if told and beside else told or beside


def _rows(report: Report) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for title, by_draft in on_sets(report):
        for i, (name, measure) in enumerate(by_draft.items()):
            rows.append((_printable(title) if i == 0 else "", name, *_figures(measure)))
    return rows


def _figures(measure: SetMeasure) -> tuple[str, ...]:
    return (
        fixed(measure.drafts_held),
        span(measure.interval),
        fixed(measure.drafts_held_starts),
        count(measure.rows),
        percent_sign(measure.coverage),
    )


def summary_markdown(report: Report) -> str:
    """Verdict, how sure, drafts, codecs and the command, in GitHub's markdown."""
    sure = how_sure(report)
    parts = [
        f"**{_escape(verdict(report).text)}**",
        _escape(f"{sure.short}, {sure.why}"),
        *(f"> {_escape(doubt)}" for doubt in doubts(report)),
        _table(HEADS, _rows(report), left=2),
    ]
    if report.codecs:
        parts.append(
            _table(
                ("codec", "draft", "file", "held", "to keep, ± s.e."),
                _codec_rows(report),
                left=1,
            )
        )
    fence = _fence(report.command)
    parts.append(f"{fence}sh\n{report.command}\n{fence}")
    return "\n\n".join(parts) + "\n"


def _codec_rows(report: Report) -> list[Sequence[str]]:
    return [
        (
            row.codec,
            size(row.draft_bytes),
            size(row.file_bytes),
            fixed(row.drafts_held, 3),
            "" if row.to_keep is None else with_error(row.to_keep.value, row.to_keep.se, 3),
        )
        for row in report.codecs
    ]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    """A pipe table whose first `left` columns are words and the rest figures."""
    rule = [":--" if i < left else "--:" for i in range(len(heads))]
    lines = [heads, rule, *([_escape(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escape(text: str) -> str:
    """What markdown or HTML would read as its own, made plain."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    for mark in "\\`*_|[]":
        plain = plain.replace(mark, "\\" + mark)
    return plain


def _fence(text: str) -> str:
    """More backticks than the text has in a row."""
    length = 3
    while "`" * length in text:
        length += 1
    return "`" * length
