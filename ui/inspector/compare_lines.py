"""The tables of two heals in use as they are printed: a line a figure, A, B and B − A."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from ui.figures import ABSENT, fixed, percent, signed, span
from ui.inspector.compare_data import Comparison, Row, Value
from ui.inspector.compare_use import Bounded, SampledRow, is_clear, sampled_rows
from ui.inspector.compare_view import between_text
from ui.page import ALL

AnyRow = TypeVar("AnyRow", Row, SampledRow)
Shown = tuple[str, str]  # a figure and its 95 % interval


@dataclass(frozen=True)
class UseLine:
    """A figure by `what`, either side, and the difference."""

    what: str
    a: Shown
    b: Shown
    between: Shown
    is_clear: bool


def use_lines(rows: Sequence[Row], factor: float, places: int) -> tuple[UseLine, ...]:
    """Of the healed draft on all data: rows by drafts held, or by depth."""
    return tuple(
        UseLine(
            str(row.step),
            _value(row.a, factor, places),
            _value(row.b, factor, places),
            (between_text(row.between, factor, places), ""),
            is_clear(row.between),
        )
        for row in main(rows)
    )


@dataclass(frozen=True)
class SampledLine:
    """A step at a temperature: tokens drawn, and always the first."""

    temperature: str
    step: str
    is_first: bool  # of its temperature
    drawn: UseLine
    first: UseLine


def sampled_lines(pair: Comparison) -> tuple[SampledLine, ...]:
    """Of the healed draft on all data: acceptance in per cent by temperature and step."""
    rows = main(tuple(sampled_rows(pair)))
    found: list[SampledLine] = []
    for drawn, first in zip(rows[::2], rows[1::2], strict=True):
        temperature = fixed(drawn.temperature, 1)
        is_first = not found or found[-1].temperature != temperature
        lines = [_sampled(row) for row in (drawn, first)]
        found.append(SampledLine(temperature, str(drawn.step), is_first, *lines))
    return tuple(found)


def _sampled(row: SampledRow) -> UseLine:
    return UseLine(
        "",
        _bounded(row.a),
        _bounded(row.b),
        _apart(row.between),
        is_clear(row.between),
    )


def main(rows: Sequence[AnyRow]) -> tuple[AnyRow, ...]:
    """Of the first data set (all data where there are many), healed if that is there."""
    titles = [row.title for row in rows]
    first = ALL if ALL in titles else titles[0] if titles else ""
    here = tuple(row for row in rows if row.title == first)
    healed = tuple(row for row in here if row.draft in ("", "healed"))
    return healed or here


def _value(value: Value | None, factor: float, places: int) -> Shown:
    if value is None:
        return ABSENT, ""
    ends = value.interval
    spelled = None if ends is None else (factor * ends[0], factor * ends[1])
    return fixed(factor * value.value, places), span(spelled, places) if spelled else ""


def _bounded(found: Bounded | None) -> Shown:
    if found is None:
        return ABSENT, ""
    low, high = percent(found.low), percent(found.high)
    figure = low if low == high else f"{low}–{high}"
    return figure, span((100 * found.interval[0], 100 * found.interval[1]), 1)


def _apart(found: Bounded | None) -> Shown:
    if found is None:
        return ABSENT, ""
    low, high = signed(100 * found.low, 1), signed(100 * found.high, 1)
    ends = tuple(signed(100 * end, 1) for end in found.interval)
    return _from_to(low, high), _from_to(*ends)


def _from_to(low: str, high: str) -> str:
    """One figure where both are spelled alike."""
    return low if low == high else f"{low} to {high}"
