"""One array, looked at through one window: a chunk is read, however large the whole is."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal
from urllib.parse import urlencode

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from store.artifact import Artifact
from ui.figures import percent_sign
from ui.inspector.answer import (
    Format,
    Table,
    chosen_table,
    page,
    svg_response,
    table_response,
)
from ui.inspector.array_data import (
    MEANINGS,
    Block,
    Statistics,
    TopRow,
    along,
    channels_of,
    histogram_of,
    outliers_of,
    read_block,
    statistics_of,
    top_pair,
    top_rows,
)
from ui.inspector.array_plots import (
    along_plot,
    heat_plot,
    histogram_plot,
    number,
    scale_key,
)
from ui.inspector.array_tables import (
    channels_table,
    histogram_table,
    rows_table,
    statistics_table,
    top_table,
)
from ui.inspector.blocks import WholeArray, whole_arrays
from ui.inspector.depot import Depot, InDepot, NotHere
from ui.inspector.heat import heat_png, scale_of
from ui.inspector.spelling import Spelling, spelling_of

router = APIRouter()

Place = Annotated[int, Query(ge=0)]
Name = Annotated[str | None, Query(max_length=200)]
TOP_ROWS, TOP_TOKENS = 6, 8  # positions and tokens of each that a page shows


@dataclass(frozen=True)
class Looked:
    """The array asked for, and the one window of it that was read."""

    artifact: Artifact
    arrays: dict[str, WholeArray]
    block: Block

    @property
    def array(self) -> WholeArray:
        """The one asked for."""
        return self.block.array

    @property
    def has_heat(self) -> bool:
        """Ids have no size to colour by, one column has no channels."""
        return self.block.kind != "whole numbers" and self.block.values_RC.shape[1] > 1

    @property
    def has_line(self) -> bool:
        """Rows of ids have no norm, one position makes no line."""
        rows, columns = self.block.values_RC.shape
        return rows > 1 and (self.block.kind != "whole numbers" or columns == 1)


def _look(depot: Depot, stage: str, key: str, name: str | None, window: int) -> Looked:
    """NotHere, Damaged, ArtifactDamaged."""
    artifact = depot.artifact(stage, key)
    arrays = whole_arrays(depot, artifact)
    if not arrays:
        raise NotHere(f"{artifact.name} holds no arrays.")
    chosen = next(iter(arrays)) if name is None else name
    if chosen not in arrays:
        raise NotHere(
            f"{artifact.name} holds no array {chosen!r}; there are: {', '.join(arrays)}."
        )
    return Looked(artifact, arrays, read_block(depot, arrays[chosen], window))


@router.get("/arrays/{stage}/{key}", response_class=HTMLResponse, include_in_schema=False)
def arrays(  # noqa: PLR0913 — each is a part of the URL
    request: Request,
    depot: InDepot,
    stage: str,
    key: str,
    *,
    name: Name = None,
    w: Place = 0,
    row: Place = 0,
) -> Response:
    """An array's outline, and what one window of it holds."""
    looked = _look(depot, stage, key, name, w)
    block, array = looked.block, looked.array
    edges, counts = histogram_of(block)
    query = urlencode({"name": array.name, "w": w})
    api = f"/api/arrays/{stage}/{key}"
    told = statistics_of(block)
    outliers = outliers_of(channels_of(block)) if block.kind == "numbers" else ()
    what, series = along(block) if looked.has_line else ("", np.zeros(0))
    heat, scale = Markup(""), Markup("")
    if looked.has_heat:
        heat = heat_plot(block, outliers, f"{api}/heat.png?{query}")
        scale = scale_key(scale_of(block.values_RC), has_gaps=told.not_finite > 0)
    return page(
        request, "arrays.html", title=f"{array.name}, window {w:,}", stage=stage, key=key,
        here=f"/arrays/{stage}/{key}", api=api, query=query, looked=looked, array=array,
        block=block, facts=_facts(told), outliers=outliers, heat=heat, scale=scale,
        histogram=histogram_plot(edges, counts, array.name) if counts.size else "",
        what=what, line=along_plot(what, series, array.name) if looked.has_line else "",
        top=_top(depot, looked, row), number=number, dims=_dims,
        meaning=MEANINGS.get(array.name, ""),
        link=lambda **to: urlencode({"name": array.name, "w": w} | to),
    )  # fmt: skip


def _dims(shape: tuple[int, ...]) -> str:
    return " × ".join(f"{n:,}" for n in shape) or "scalar"


def _facts(told: Statistics) -> tuple[tuple[str, str], ...]:
    finite = f"all {told.values:,}"
    if told.not_finite:
        finite = f"{told.values - told.not_finite:,} of {told.values:,}"
    return (
        ("least", number(told.least)),
        ("largest", number(told.largest)),
        ("mean", number(told.mean)),
        ("standard deviation", number(told.deviation)),
        ("zeros", f"{told.zeros:,} ({percent_sign(told.zeros / max(told.values, 1))})"),
        ("rows of zeros only", f"{told.zero_rows:,}"),
        ("finite", finite),
    )


@dataclass(frozen=True)
class Bars:
    """A row's most likely tokens, ready to print; `rest` is what the others kept sum to."""

    title: str
    bars: tuple[tuple[str, float], ...]
    rest: str


@dataclass(frozen=True)
class Top:
    """The rows from `row` on, of all `rows`."""

    row: int
    rows: int
    other: str  # the array that was read beside the one asked for
    why: str
    shown: tuple[Bars, ...]
    before: int | None
    after: int | None


def _top(depot: Depot, looked: Looked, row: int) -> Top | None:
    """The rows of a pair of ids and probabilities; None for any other array."""
    if top_pair(looked.arrays, looked.array.name) is None:
        return None
    ids, p = _pair(depot, looked)
    rows = len(ids.values_RC)
    if row >= rows:
        raise NotHere(f"A window has rows 0 to {rows - 1:,}, not {row:,}.")
    end = min(row + TOP_ROWS, rows)
    spelling = _spelling(depot, looked)
    shown = tuple(_bars(one, spelling) for one in top_rows(ids, p, range(row, end)))
    return Top(
        row, rows, (ids if looked.block is p else p).array.name, spelling.why, shown,
        max(row - TOP_ROWS, 0) if row else None, end if end < rows else None,
    )  # fmt: skip


def _pair(depot: Depot, looked: Looked) -> tuple[Block, Block]:
    """Ids and probabilities; the one asked for was read already."""
    pair = top_pair(looked.arrays, looked.array.name)
    assert pair is not None, looked.array.name
    ids, p = (
        looked.block
        if one == looked.array.name
        else read_block(depot, looked.arrays[one], looked.block.window)
        for one in pair
    )
    return ids, p


def _spelling(depot: Depot, looked: Looked) -> Spelling:
    inputs = depot.find(looked.array.shards[0]).manifest.inputs
    return spelling_of(depot, str(inputs.get("trunk")))


def _bars(top: TopRow, spelling: Spelling) -> Bars:
    title = f"row {top.position:,}" + (f", step {top.step}" if top.step else "")
    pairs = tuple(zip(top.ids, top.p, strict=True))
    rest = sum(p for _, p in pairs[TOP_TOKENS:])
    said = f"{len(pairs) - TOP_TOKENS} more: {percent_sign(rest)}"
    return Bars(
        title,
        tuple((spelling.alone(token), p) for token, p in pairs[:TOP_TOKENS]),
        said if len(pairs) > TOP_TOKENS else "",
    )


@router.get("/api/arrays/{stage}/{key}/heat.png", tags=["arrays"])
def heat(depot: InDepot, stage: str, key: str, name: Name = None, w: Place = 0) -> Response:
    """One window as a picture: positions down, channels across, log10 |value|."""
    looked = _look(depot, stage, key, name, w)
    if not looked.has_heat:
        raise NotHere(f"{looked.array.name} has no rows of channels to picture.")
    values = looked.block.values_RC
    return Response(heat_png(values, scale_of(values)), media_type="image/png")


@router.get("/api/arrays/{stage}/{key}/plots/{plot}.svg", tags=["arrays"])
def array_plot(
    depot: InDepot,
    stage: str,
    key: str,
    plot: Literal["histogram", "rows"],
    *,
    name: Name = None,
    w: Place = 0,
) -> Response:
    """One window's `histogram`, or its `rows` as a line over the positions."""
    looked = _look(depot, stage, key, name, w)
    if plot == "rows" and not looked.has_line:
        raise NotHere(f"{looked.array.name} has no figure a row to draw.")
    if plot == "histogram":
        edges, counts = histogram_of(looked.block)
        if not counts.size:
            raise NotHere(f"Window {w:,} of {looked.array.name} holds nothing finite.")
        drawn = histogram_plot(edges, counts, looked.array.name)
    else:
        drawn = along_plot(*along(looked.block), looked.array.name)
    return svg_response(drawn, f"{looked.array.name}-{w}-{plot}", (960, 240))


@router.get("/api/arrays/{stage}/{key}/{table}.{form}", tags=["arrays"])
def array_table(  # noqa: PLR0913 — each is a part of the URL
    depot: InDepot,
    stage: str,
    key: str,
    table: str,
    form: Format,
    *,
    name: Name = None,
    w: Place = 0,
) -> Response:
    """One window's `statistics`, `histogram`, `rows`, `channels` or `topk`."""
    looked = _look(depot, stage, key, name, w)
    made = chosen_table(_tables(depot, looked), table)
    return table_response(made(), form, f"{looked.array.name}-{w}-{table}")


def _tables(depot: Depot, looked: Looked) -> dict[str, Callable[[], Table]]:
    """What makes each table that this array has."""
    block = looked.block
    made: dict[str, Callable[[], Table]] = {
        "statistics": partial(statistics_table, block),
        "histogram": partial(histogram_table, block),
    }
    if looked.has_line:
        made["rows"] = partial(rows_table, block)
    if block.kind == "numbers":
        made["channels"] = partial(channels_table, block)
    if top_pair(looked.arrays, looked.array.name) is not None:
        made["topk"] = partial(_top_table, depot, looked)
    return made


def _top_table(depot: Depot, looked: Looked) -> Table:
    ids, p = _pair(depot, looked)
    rows = top_rows(ids, p, range(len(ids.values_RC)))
    return top_table(rows, _spelling(depot, looked))
