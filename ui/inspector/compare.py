"""Two heals beside each other, or one before and after: what differs, and how surely."""

from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from ui.inspector.answer import (
    Cell,
    Format,
    Table,
    as_table,
    page,
    svg_response,
    table_response,
)
from ui.inspector.compare_data import (
    Comparison,
    Row,
    Value,
    caveats,
    held_rows,
    rate_rows,
    setting_rows,
)
from ui.inspector.compare_view import (
    board,
    codec_lines,
    glances,
    sentence,
    stage_lines,
    stage_seconds,
    training_plots,
)
from ui.inspector.depot import Depot, InDepot, NotHere
from ui.inspector.heals import book_of, when
from ui.page import ALL

router = APIRouter()

Picks = Annotated[tuple[str, ...], Query(max_length=8)]
Name = Annotated[str, Query(max_length=200)]
CompareTable = Literal["settings", "drafts", "steps", "codecs", "stages"]
PLOTS = {"held": "Drafts held", "kl": "Held-out KL", "loss": "Loss"}


@router.get("/compare", response_class=HTMLResponse, include_in_schema=False)
def compare(
    request: Request, depot: InDepot, a: Name = "", b: Name = "", pick: Picks = ()
) -> Response:
    """Heals `a` and `b`, or the two of `pick`; one alone is compared before and after."""
    heals = book_of(depot).heals()
    chosen = _chosen(a, b, pick)
    options = [(heal.id, f"{heal.asked.title}, {when(heal.started)}, {heal.state}")
               for heal in heals]  # fmt: skip
    if not chosen:
        return page(request, "compare.html", title="Compare", pair=None, options=options)
    pair = _pair(depot, chosen)
    held, rates = held_rows(pair), rate_rows(pair)
    settings, same = setting_rows(pair)
    plots = training_plots(pair)
    names = {title: name for name, title in PLOTS.items()}
    return page(
        request, "compare.html", title="Compare", pair=pair, options=options,
        sentence=sentence(pair), caveats=caveats(pair), glances=glances(pair),
        settings=settings, same=same, when=when,
        held=board(held, pair.names) if held else None,
        rates=board(_main(rates), pair.names, percent=True) if rates else None,
        more_rates=len(rates) > len(_main(rates)),
        codecs=codec_lines(pair), stages=stage_lines(pair),
        plots=[(names[title], title, unit, plot) for title, unit, plot in plots],
        query=urlencode({"a": pair.a.id, "b": pair.b.id}),
    )  # fmt: skip


def _chosen(a: str, b: str, pick: tuple[str, ...]) -> tuple[str, ...]:
    named = tuple(name for name in (a, b, *pick) if name)
    if len(set(named)) > 2:
        raise NotHere("Two heals at most stand beside each other; pick two, or one.")
    return named


def _pair(depot: Depot, names: tuple[str, ...]) -> Comparison:
    book = book_of(depot)
    return Comparison(book.heal(names[0]), book.heal(names[-1]))


def _main(rates: tuple[Row, ...]) -> tuple[Row, ...]:
    """Of the first data set (all data where there are many), healed if that is there."""
    titles = [row.title for row in rates]
    first = ALL if ALL in titles else titles[0] if titles else ""
    here = tuple(row for row in rates if row.title == first)
    healed = tuple(row for row in here if row.draft in ("", "healed"))
    return healed or here


@router.get("/api/compare/{table}.{form}", tags=["compare"])
def compare_table(
    depot: InDepot, table: CompareTable, form: Format, a: Name, b: Name = ""
) -> Response:
    """A table of two heals by their runs' ids; without `b`, of `a` before and after."""
    pair = _pair(depot, (a, b or a))
    return table_response(_table(pair, table), form, f"compare-{table}")


def _table(pair: Comparison, table: CompareTable) -> Table:
    if table == "settings":
        settings = [(one.name, one.a, one.b) for one in setting_rows(pair)[0]]
        return as_table(("setting", "a", "b"), settings)
    if table == "codecs":
        return _codecs(pair)
    if table == "stages":
        return _stages(pair)
    rows = held_rows(pair) if table == "drafts" else rate_rows(pair)
    figures = ("value", "low_95", "high_95", "rows")
    columns = ["data", "draft", "step"]
    columns += [f"{side}_{figure}" for side in "ab" for figure in figures]
    columns += ["difference", "half_width_95", "is_paired"]
    return as_table(columns, [_cells(row) for row in rows])


def _cells(row: Row) -> tuple[Cell, ...]:
    found = row.between
    last = (
        (None, None, None)
        if found is None
        else (found.value, found.half_width, found.is_paired)
    )
    draft = row.draft or "stale, healed"
    return (row.title, draft, row.step or None, *_figures(row.a), *_figures(row.b), *last)


def _figures(value: Value | None) -> tuple[Cell, ...]:
    if value is None:
        return (None,) * 4
    return (value.value, *(value.interval or (None, None)), value.rows)


def _codecs(pair: Comparison) -> Table:
    sides = [
        {row.codec: row for row in heal.report.codecs} if heal.report else {}
        for heal in (pair.a, pair.b)
    ]
    rows: list[list[Cell]] = []
    for codec in dict.fromkeys([*sides[0], *sides[1]]):
        row: list[Cell] = [codec]
        for side in sides:
            one = side.get(codec)
            row += [None, None] if one is None else [one.draft_bytes, one.drafts_held]
        rows.append(row)
    return as_table(("codec", "a_draft_bytes", "a_held", "b_draft_bytes", "b_held"), rows)


def _stages(pair: Comparison) -> Table:
    sides = [stage_seconds(heal) for heal in (pair.a, pair.b)]
    rows = [
        (name, *sides[0].get(name, (None, None)), *sides[1].get(name, (None, None)))
        for name in dict.fromkeys([*sides[0], *sides[1]])
    ]
    return as_table(("stage", "a_seconds", "a_state", "b_seconds", "b_state"), rows)


@router.get("/api/compare/plots/{plot}.svg", tags=["compare"])
def compare_plot(
    depot: InDepot, plot: Literal["held", "kl", "loss"], a: Name, b: Name
) -> Response:
    """Two trainings' curves on shared axes as an SVG file: A plain, B dashed."""
    drawn = {title: made for title, _, made in training_plots(_pair(depot, (a, b)))}
    if PLOTS[plot] not in drawn:
        raise NotHere(f"Neither heal has a training with {PLOTS[plot].lower()} to draw.")
    return svg_response(drawn[PLOTS[plot]], f"compare-{plot}", (720, 240))
