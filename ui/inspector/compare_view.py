"""A comparison's rows as the page spells them, its sentence and its plots."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from conf.schema import Cost
from ui.answers import best_codec
from ui.contents import CodecRow, DraftName, Report
from ui.curves import Curve, Point, lines_plot
from ui.figures import ABSENT, count, duration, fixed, signed, size, span, with_error
from ui.inspector.compare_data import Between, Comparison, Row, Value, between, held_rows
from ui.inspector.heal_list import Heal, took_text
from ui.inspector.rounds import curves
from ui.inspector.strips import StripRow
from ui.plots import Axis, Mark, nice_axis, scale, strip
from ui.verdict import gain_text

Phrase = tuple[str, str]  # a draft's name for its colour or "", and the text


@dataclass(frozen=True)
class Side:
    """One side of a row: its mark on the row's axis, and its figures."""

    name: str
    draft: DraftName | None
    strip: Markup
    value: str
    interval: str
    rows: str


@dataclass(frozen=True)
class Line:
    """A row as it is printed: two sides under each other and the difference."""

    what: str
    a: Side
    b: Side
    between: str
    is_clear: bool


@dataclass(frozen=True)
class Group:
    """The rows of one data set."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Board:
    """Groups of rows on one axis, its scale below."""

    groups: tuple[Group, ...]
    scale: Markup
    has_paired: bool


def board(rows: Sequence[Row], names: tuple[str, str], *, percent: bool = False) -> Board:
    """Rows by data set; with `percent`, rates are spelled in per cent, one decimal."""
    factor, places = (100.0, 1) if percent else (1.0, 2)
    values = [v for row in rows for v in (row.a, row.b) if v is not None]
    ends = [factor * end for v in values for end in (v.value, *(v.interval or ()))]
    axis = nice_axis(ends)
    groups = tuple(
        Group(title, tuple(_line(row, names, axis, factor, places) for row in part))
        for title, part in groupby(rows, key=lambda row: row.title)
    )
    is_paired = any(row.between is not None and row.between.is_paired for row in rows)
    return Board(groups, scale(axis, lambda tick: fixed(tick, axis.places)), is_paired)


def strip_rows(found: Board) -> tuple[StripRow, ...]:
    """A board's sides one by one, each named whole."""
    return tuple(
        StripRow(", ".join(filter(None, (group.title, line.what, side.name))), side.strip,
                 side.value)
        for group in found.groups
        for line in group.lines
        for side in (line.a, line.b)
    )  # fmt: skip


def _line(row: Row, names: tuple[str, str], axis: Axis, factor: float, places: int) -> Line:
    what = f"step {row.step}" if row.step else row.draft
    if row.step and row.draft:
        what = f"{row.draft}, {what}"
    sides = [
        _side(name, value, f"{row.title}, {what} {name}", axis, factor, places)
        for name, value in zip(names, (row.a, row.b), strict=True)
    ]
    is_clear = row.between is not None and row.between.is_clear
    return Line(
        what, sides[0], sides[1], between_text(row.between, factor, places), is_clear
    )


def _side(
    name: str, value: Value | None, what: str, axis: Axis, factor: float, places: int
) -> Side:
    if value is None:
        return Side(name, None, Markup(""), ABSENT, ABSENT, ABSENT)
    low_high = (
        None
        if value.interval is None
        else (factor * value.interval[0], factor * value.interval[1])
    )
    figure, interval = fixed(factor * value.value, places), span(low_high, places)
    label = f"{what}: {figure}, 95 % {interval}"
    mark = Mark(value.draft, factor * value.value, low_high)
    drawn = strip(axis, [mark], label, height=20)
    return Side(name, value.draft, drawn, figure, interval, count(value.rows))


def between_text(found: Between | None, factor: float = 1.0, places: int = 2) -> str:
    """`+0.12 ± 0.05`; without the ± where a side has no interval."""
    if found is None:
        return ABSENT
    if found.half_width is None:
        return signed(factor * found.value, places)
    return with_error(factor * found.value, factor * found.half_width, places)


def sentence(pair: Comparison) -> tuple[Phrase, ...]:
    """Which is better and whether that is sure, in phrases."""
    whole = [row for row in held_rows(pair) if row.between is not None]
    wanted = [row for row in whole if row.draft in ("", "healed")] or whole
    if not wanted:
        return (("", "There are no measures of both to compare."),)
    row = wanted[0]
    found, a, b = row.between, row.a, row.b
    assert found is not None
    assert a is not None
    assert b is not None
    sides = [(name, side) for name, side in zip(pair.names, (a, b), strict=True)]
    if found.is_clear and found.value > 0:
        sides.reverse()
    (first, more), (second, less) = sides
    told: tuple[Phrase, ...] = (
        _named(pair, first, more), ("", " against "), _named(pair, second, less),
        ("", f" drafts held a round ({pair.names[1]} − {pair.names[0]}: "
         f"{between_text(found)})."),
    )  # fmt: skip
    if found.half_width is None:
        return (("", "Without intervals nobody can say which is better: "), *told)
    if not found.is_clear:
        return (("", "No clear difference: "), *told)
    who = f"The {first} draft" if pair.is_one else first
    return (("", f"{who} holds more: "), *told)


def _named(pair: Comparison, name: str, side: Value) -> Phrase:
    return (side.draft, fixed(side.value) if pair.is_one else f"{name} {fixed(side.value)}")


@dataclass(frozen=True)
class Glance:
    """One figure of both heals as a whole."""

    name: str
    a: str
    b: str


def glances(pair: Comparison, cost: Cost) -> tuple[Glance, ...]:
    """State, gain, codec, depth and time of either heal."""
    sides = [_glance(heal, cost) for heal in (pair.a, pair.b)]
    return tuple(
        Glance(name, sides[0].get(name, ABSENT), sides[1].get(name, ABSENT))
        for name in dict.fromkeys([*sides[0], *sides[1]])
    )


def _glance(heal: Heal, cost: Cost) -> dict[str, str]:
    found = {
        "state": heal.state,
        "layout · loss": " · ".join(filter(None, (heal.asked.layout, heal.asked.loss)))
        or ABSENT,
        "data": ", ".join(heal.asked.data) or ABSENT,
        "took": took_text(heal.took_s),
    }
    report = heal.report
    if report is None:
        return found
    best = best_codec(report.codecs)
    found |= {
        "gain, healed − stale": gain_text(report) or ABSENT,
        "kept checkpoint": f"step {report.training.chosen_step:,}"
        if report.training
        else ABSENT,
        "codec to ship": f"{best.codec}, {size(best.draft_bytes)}" if best else ABSENT,
        "draft how deep": _depth(report, cost),
    }
    return found


def _depth(report: Report, cost: Cost) -> str:
    drawn = curves(report)
    if not drawn:
        return ABSENT
    fast = drawn[-1].speed(cost.verify, cost.draft)
    return f"{fast.best}, then {fixed(max(fast.held))}× plain decoding"


@dataclass(frozen=True)
class CodecLine:
    """A codec of both heals: size and drafts held of its file."""

    codec: str
    a: tuple[str, str]
    b: tuple[str, str]
    between: str


def codec_lines(pair: Comparison) -> tuple[CodecLine, ...]:
    """Every codec that either heal wrote."""
    sides = [
        {row.codec: row for row in heal.report.codecs} if heal.report else {}
        for heal in (pair.a, pair.b)
    ]
    found = []
    for codec in dict.fromkeys([*sides[0], *sides[1]]):
        rows = [side.get(codec) for side in sides]
        cells = [
            (ABSENT, ABSENT) if r is None else (size(r.draft_bytes), fixed(r.drafts_held))
            for r in rows
        ]
        a, b = rows
        paired = pair.pairing.drafts.get(f"codecs.{codec}")
        half = paired.held(paired.a.depth) if paired and paired.is_as_deep else None
        change = between_text(between(_codec(a), _codec(b), half))
        found.append(CodecLine(codec, cells[0], cells[1], change))
    return tuple(found)


def _codec(row: CodecRow | None) -> Value | None:
    return None if row is None else Value("healed", row.drafts_held, row.interval, 0)


def stage_seconds(heal: Heal) -> dict[str, tuple[float, str]]:
    """By stage: its calls' seconds together, and whether any was made anew."""
    events = (
        heal.run.record.events if heal.run else heal.report.stages if heal.report else ()
    )
    found: dict[str, tuple[float, str]] = {}
    for event in events:
        seconds, state = found.get(event.name, (0.0, "cached"))
        is_new = event.state != "cached"
        found[event.name] = (seconds + event.seconds, event.state if is_new else state)
    return found


def stage_lines(pair: Comparison) -> tuple[tuple[str, str, str], ...]:
    """Durations by stage; a cached one says so, since it only looked."""
    sides = [stage_seconds(heal) for heal in (pair.a, pair.b)]

    def spelled(side: dict[str, tuple[float, str]], name: str) -> str:
        if name not in side:
            return ABSENT
        seconds, state = side[name]
        return "cached" if state == "cached" else duration(seconds)

    names = dict.fromkeys([*sides[0], *sides[1]])
    return tuple((name, spelled(sides[0], name), spelled(sides[1], name)) for name in names)


def training_plots(pair: Comparison) -> tuple[tuple[str, str, Markup], ...]:
    """Drafts held, KL and loss over steps, A plain and B dashed on shared axes."""
    if pair.is_one:
        return ()
    wanted = (("held", "Drafts held", "at each evaluation"), ("kl", "Held-out KL", "nats"),
              ("loss", "Loss", "nats, each step"))  # fmt: skip
    found = []
    for field, title, unit in wanted:
        lines = [
            Curve(name, points, is_dotted=field != "loss")
            for name, heal in zip("AB", (pair.a, pair.b), strict=True)
            if (points := _points(heal.report, field))
        ]
        if lines:
            found.append((title, unit, lines_plot(lines, dashed=lines[0].name == "A")))
    return tuple(found)


def _points(report: Report | None, field: str) -> tuple[Point, ...]:
    rows = report.training.rows if report and report.training else ()
    return tuple(
        Point(row.step, value, row.interval if field == "held" else None)
        for row in rows
        if (value := getattr(row, field)) is not None
    )
