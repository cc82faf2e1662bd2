"""How a page, a table or a plot goes out: HTML with its policy, CSV, JSON, a whole SVG."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, TypeVar

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ui import figures
from ui.inspector.depot import Depot, NotHere
from ui.plots import key_mark

Cell = str | int | float | bool | None
Format = Literal["csv", "json"]
Made = TypeVar("Made")

POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
# What a spreadsheet would take for a formula gets a quote before it.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Table:
    """Rows under named columns, values as numbers and text, nothing spelled."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def dicts(self) -> list[dict[str, Cell]]:
        """One mapping a row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@cache
def environment() -> Environment:
    """The templates; every value is escaped, an unknown name is an error."""
    made = Environment(
        loader=PackageLoader("ui.inspector", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(fig=figures, key_mark=key_mark)
    made.filters.update(
        size=figures.size,
        digest=figures.digest,
        duration=figures.duration,
        count=figures.count,
    )
    return made


def page(request: Request, template: str, *, title: str, **values: object) -> HTMLResponse:
    """A template as a page; `base.html` wants nothing but a title."""
    depot: Depot = request.app.state.depot
    text = environment().get_template(template).render(
        title=title, root=str(depot.root), path=request.url.path, **values
    )  # fmt: skip
    return HTMLResponse(text)


def table_response(table: Table, form: Format, name: str) -> Response:
    """A table as `name.csv` or as `{"rows": [{…}]}`."""
    if form == "json":
        return JSONResponse({"columns": list(table.columns), "rows": table.dicts()})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([_safe(cell) for cell in row] for row in table.rows)
    return Response(
        out.getvalue(),
        media_type="text/csv; charset=utf-8",
        headers={"content-disposition": f'attachment; filename="{_file(name)}.csv"'},
    )


def chosen_table(tables: Mapping[str, Made], name: str) -> Made:
    """The table called so, or what makes it; NotHere with the names that there are."""
    if name not in tables:
        known = ", ".join(sorted(tables)) or "none"
        raise NotHere(f"There is no table {name!r} here; there are: {known}.")
    return tables[name]


def svg_response(plot: Markup | str, name: str, size: tuple[int, int]) -> Response:
    """A page's plot as a file: a fixed width and height in pixels, light colours inside."""
    width, height = size
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><style>{_plot_style()}</style>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>'
        f'<svg x="56" y="20" width="{width - 76}" height="{height - 60}" '
        f'overflow="visible">{plot}</svg></svg>'
    )
    return Response(
        text,
        media_type="image/svg+xml",
        headers={
            "content-disposition": f'attachment; filename="{_file(name)}.svg"',
            "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
        },
    )


@cache
def _plot_style() -> str:
    """The style sheet's rules for plots, its variables replaced by the light theme's."""
    tokens = files("ui").joinpath("tokens.css").read_text(encoding="utf-8")
    light = dict(re.findall(r"--([\w-]+):\s*([^;]+);", tokens.split("@media")[0]))
    sheet = files("ui.inspector").joinpath("static/inspector.css")
    text = sheet.read_text(encoding="utf-8")
    own = text.split("/* plots")[1].split("*/", 1)[1].split("/* end plots */")[0]
    plots = files("ui").joinpath("plots.css").read_text(encoding="utf-8") + own
    return re.sub(
        r"var\(--([\w-]+)\)", lambda found: light[found[1]].replace('"', "'"), plots
    )


def _safe(cell: Cell) -> Cell:
    is_risky = isinstance(cell, str) and cell.startswith(FORMULA)
    return f"'{cell}" if is_risky else cell


def _file(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:100] or "table"


def as_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    """A table from lists."""
    return Table(tuple(columns), tuple(tuple(row) for row in rows))
