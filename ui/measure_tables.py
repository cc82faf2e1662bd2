"""Tables behind the headline: sampling, the first four, place in the window, trimming."""

from dataclasses import dataclass

from ui.contents import Accepted, Report
from ui.figures import ABSENT, count, fixed, percent, span
from ui.page import on_sets, pair


@dataclass(frozen=True)
class Table:
    """Words in the first `words` columns, figures behind them; `name` in addresses."""

    name: str
    title: str
    note: str
    heads: tuple[str, ...]
    words: int
    lines: tuple[tuple[str, ...], ...]


def measure_tables(report: Report) -> tuple[Table, ...]:
    """Those that were measured."""
    tables = (
        _sampling_table(report),
        _chain_table(report),
        _best_table(report),
        _position_table(report),
        _vocabulary_table(report),
    )
    return tuple(table for table in tables if table.lines)


def _sampling_table(report: Report) -> Table:
    lines = tuple(
        (title, name, fixed(at.temperature, 1), str(step.step), *_accepted(step))
        for title, by_draft in on_sets(report)
        for name, measure in by_draft.items()
        if name in pair(report)
        for at in measure.sampling
        for step in at.steps
    )
    return Table(
        "sampling",
        "Acceptance under sampling",
        "Of the starts that count at a step, how many drafts a trunk that samples takes: "
        "drawn from the draft’s own distribution, or always its first token. From low to "
        "high where the trunk’s kept top-k leaves it open; at temperature 0 both are the "
        "greedy count over all starts. 95 % intervals hold both bounds.",
        ("data", "draft", "temperature", "step",
         "drawn, %", "95 %", "first, %", "95 %", "rows"),
        2,
        lines,
    )  # fmt: skip


def _accepted(step: Accepted) -> tuple[str, ...]:
    return (
        _bounds(step.sampled),
        _hundred(step.sampled_interval),
        _bounds(step.greedy),
        _hundred(step.greedy_interval),
        count(step.rows),
    )


def _bounds(bounds: tuple[float, float] | None) -> str:
    """One figure where the two are spelled alike."""
    if bounds is None:
        return ABSENT
    low, high = (percent(end) for end in bounds)
    return low if low == high else _hundred(bounds)


def _hundred(interval: tuple[float, float] | None) -> str:
    return span(None if interval is None else (100 * interval[0], 100 * interval[1]), 1)


def _chain_table(report: Report) -> Table:
    lines = tuple(
        (name, fixed(at.temperature, 1), span(at.sampled), span(at.sampled_interval),
         span(at.greedy), span(at.greedy_interval), count(at.rows))
        for name in pair(report)
        for at in report.measures[name].sampled_chains
    )  # fmt: skip
    return Table(
        "sampled-chains",
        "Drafts held under sampling",
        "Whole chains on the text that the trunk sampled itself, at its temperature: every "
        "start, weighed by how likely a draft had led there. From low to high where the "
        "top-k leaves it open. Prompts are part of that text, and none of the trunk’s.",
        ("draft", "temperature", "drawn", "95 %", "first", "95 %", "rows"),
        1,
        lines,
    )


def _best_table(report: Report) -> Table:
    lines = tuple(
        (title, name, str(best.step), percent(first.rate), percent(best.top2),
         percent(best.top3), percent(best.top4), count(best.rows))
        for title, by_draft in on_sets(report)
        for name, measure in by_draft.items()
        if name in pair(report)
        for first, best in zip(measure.hold_rates, measure.best_of, strict=False)
    )  # fmt: skip
    return Table(
        "first-four",
        "Among the first four",
        "How often the trunk’s own token is among the draft’s first tokens, from the same "
        "forward: what a small tree would add at each step.",
        ("data", "draft", "step", "first, %", "of 2, %", "of 3, %", "of 4, %", "rows"),
        2,
        lines,
    )


def _position_table(report: Report) -> Table:
    lines = tuple(
        (title, name, f"{place.first}–{place.last}", str(rate.step), percent(rate.rate),
         _hundred(None if rate.lo is None or rate.hi is None else (rate.lo, rate.hi)),
         count(rate.rows))
        for title, by_draft in on_sets(report)
        for name, measure in by_draft.items()
        if name in pair(report)
        for place in measure.by_position
        for rate in place.hold_rates
    )  # fmt: skip
    return Table(
        "places",
        "By place in the window",
        "Rounds by the row they start at. A rate over several bins or sets can be above "
        "or below every one that has rows enough: look at the rows.",
        ("data", "draft", "rows from–to", "step", "hold rate, %", "95 % interval", "rows"),
        3,
        lines,
    )


def _vocabulary_table(report: Report) -> Table:
    """Of one draft: it is the trunk and the text that decide."""
    found = next((m.vocabulary for m in report.measures.values() if m.vocabulary), ())
    lines = tuple(
        (count(one.size), count(one.tokens), percent(one.own), percent(one.mass, 2),
         count(one.rows))
        for one in found
    )  # fmt: skip
    return Table(
        "vocabulary",
        "A trimmed vocabulary",
        "What a draft’s head of the most frequent tokens of the training windows could "
        "reach of held-out text: a choice of the trunk outside it is always missed.",
        ("size", "tokens found", "trunk’s choice, %", "top-k mass, %", "rows"),
        0,
        lines,
    )
