"""Two heals beside each other, or one before and after: what differs, and how surely."""

from collections.abc import Callable
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from conf.schema import Cost
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
from ui.inspector.compare_lines import main, sampled_lines, use_lines
from ui.inspector.compare_use import (
    Bounded,
    round_rows,
    sampled_rows,
    speed_rows,
    use_plots,
)
from ui.inspector.compare_view import (
    board,
    codec_lines,
    glances,
    sentence,
    stage_lines,
    stage_seconds,
    strip_rows,
    training_plots,
)
from ui.inspector.depot import Depot, InDepot, NotHere
from ui.inspector.heals import book_of, when
from ui.inspector.pairing import pairing_of
from ui.inspector.strips import stacked

router = APIRouter()

Picks = Annotated[tuple[str, ...], Query(max_length=8)]
Name = Annotated[str, Query(max_length=200)]
CompareTable = Literal[
    "glance",
    "settings",
    "drafts",
    "steps",
    "rounds",
    "speed",
    "sampling",
    "codecs",
    "stages",
]
Verify = Annotated[float, Query(gt=0, le=10)]
DraftCost = Annotated[float, Query(ge=0, le=10)]
PLOTS = {"held": "Drafts held", "kl": "Held-out KL", "loss": "Loss"}


@router.get("/compare", response_class=HTMLResponse, include_in_schema=False)
def compare(  # noqa: PLR0913 — each is a part of the URL
    request: Request,
    depot: InDepot,
    *,
    a: Name = "",
    b: Name = "",
    pick: Picks = (),
    verify: Verify | None = None,
    draft: DraftCost | None = None,
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
    cost = _cost(pair, verify, draft)
    names = {title: name for name, title in PLOTS.items()}
    return page(
        request, "compare.html", title="Compare", pair=pair, options=options,
        sentence=sentence(pair), caveats=caveats(pair), glances=glances(pair, cost),
        settings=settings, same=same, when=when,
        held=board(held, pair.names) if held else None,
        rates=board(main(rates), pair.names, percent=True) if rates else None,
        more_rates=len(rates) > len(main(rates)), drawn=use_plots(pair, cost), cost=cost,
        rounds=use_lines(round_rows(pair), 100, 1),
        speeds=use_lines(speed_rows(pair, cost), 1, 2), sampled=sampled_lines(pair),
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
    a, b = book.heal(names[0]), book.heal(names[-1])
    return Comparison(a, b, pairing_of(depot, a, b))


def _cost(pair: Comparison, verify: float | None, draft: float | None) -> Cost:
    """Those asked for; else the heals' own if they agree, else the usual ones."""
    costs = {heal.report.cost for heal in (pair.a, pair.b) if heal.report}
    own = costs.pop() if len(costs) == 1 else Cost()
    return Cost(
        verify=own.verify if verify is None else verify,
        draft=own.draft if draft is None else draft,
    )


@router.get("/api/compare/{table}.{form}", tags=["compare"])
def compare_table(  # noqa: PLR0913 — each is a part of the URL
    depot: InDepot,
    table: CompareTable,
    form: Format,
    *,
    a: Name,
    b: Name = "",
    verify: Verify | None = None,
    draft: DraftCost | None = None,
) -> Response:
    """A table of two heals by their runs' ids; without `b`, of `a` before and after."""
    pair = _pair(depot, (a, b or a))
    made = _table(pair, table, _cost(pair, verify, draft))
    return table_response(made, form, f"compare-{table}")


def _table(pair: Comparison, table: CompareTable, cost: Cost) -> Table:
    made: dict[CompareTable, Callable[[], Table]] = {
        "glance": lambda: _glance(pair, cost),
        "settings": lambda: _settings(pair),
        "drafts": lambda: _rows_table(held_rows(pair), ""),
        "steps": lambda: _rows_table(rate_rows(pair), "step"),
        "rounds": lambda: _rows_table(round_rows(pair), "held"),
        "speed": lambda: _rows_table(speed_rows(pair, cost), "depth"),
        "sampling": lambda: _sampling(pair),
        "codecs": lambda: _codecs(pair),
        "stages": lambda: _stages(pair),
    }
    return made[table]()


def _glance(pair: Comparison, cost: Cost) -> Table:
    rows = [(one.name, one.a, one.b) for one in glances(pair, cost)]
    return as_table(("figure", "a", "b"), rows)


def _settings(pair: Comparison) -> Table:
    rows = [(one.name, one.a, one.b) for one in setting_rows(pair)[0]]
    return as_table(("setting", "a", "b"), rows)


def _rows_table(rows: tuple[Row, ...], third: str) -> Table:
    figures = ("value", "low_95", "high_95", "rows")
    columns = ["data", "draft", *([third] if third else [])]
    columns += [f"{side}_{figure}" for side in "ab" for figure in figures]
    columns += ["difference", "half_width_95", "is_paired"]
    return as_table(columns, [_cells(row, third) for row in rows])


def _sampling(pair: Comparison) -> Table:
    columns = ["data", "draft", "temperature", "step", "tokens"]
    columns += [f"{who}_{end}" for who in ("a", "b", "difference")
                for end in ("low", "high", "low_95", "high_95")]  # fmt: skip
    rows = [
        (one.title, one.draft or "stale, healed", one.temperature, one.step, one.tokens,
         *_ends(one.a), *_ends(one.b), *_ends(one.between), one.is_paired)
        for one in sampled_rows(pair)
    ]  # fmt: skip
    return as_table([*columns, "is_paired"], rows)


def _ends(found: Bounded | None) -> tuple[Cell, ...]:
    return (None,) * 4 if found is None else (found.low, found.high, *found.interval)


def _cells(row: Row, third: str) -> tuple[Cell, ...]:
    found = row.between
    last = (
        (None, None, None)
        if found is None
        else (found.value, found.half_width, found.is_paired)
    )
    draft = row.draft or "stale, healed"
    return (
        row.title,
        draft,
        *([row.step] if third else []),
        *_figures(row.a),
        *_figures(row.b),
        *last,
    )


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
    depot: InDepot,
    plot: Literal["drafts", "steps", "held", "kl", "loss", "rounds", "speed"],
    *,
    a: Name,
    b: Name = "",
    verify: Verify | None = None,
    draft: DraftCost | None = None,
) -> Response:
    """A and B on shared axes as an SVG file, B dashed where it is a line."""
    pair = _pair(depot, (a, b or a))
    height = 240
    if plot in ("drafts", "steps"):
        rows = held_rows(pair) if plot == "drafts" else main(rate_rows(pair))
        made = board(rows, pair.names, percent=plot == "steps")
        drawn, needed = stacked(strip_rows(made), made.scale)
        height = needed + 60
    elif plot in ("rounds", "speed"):
        drawn = use_plots(pair, _cost(pair, verify, draft))[plot]
    else:
        curves = {title: curve for title, _, curve in training_plots(pair)}
        drawn = curves.get(PLOTS[plot], Markup(""))
    if not drawn:
        raise NotHere(f"There is no {plot!r} of both heals to draw.")
    return svg_response(drawn, f"compare-{plot}", (720, height))
