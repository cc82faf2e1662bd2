"""The first page: every heal, newest first; filter, sort, pick two to compare."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from ui.answers import codec_to_ship
from ui.figures import ABSENT, fixed, with_error
from ui.inspector.alike import differing
from ui.inspector.answer import (
    Format,
    as_table,
    page,
    svg_response,
    table_response,
)
from ui.inspector.depot import Depot, InDepot, NotHere
from ui.inspector.heal_list import Heal, HealBook, took_text
from ui.inspector.live import live_of
from ui.inspector.strips import StripRow, stacked
from ui.plots import Axis, Mark, nice_axis, scale, strip
from ui.verdict import Outcome, outcome

router = APIRouter()

Sort = Literal["started", "gain", "held", "took", "name"]
COLUMNS = (
    *("id", "title", "data", "state", "note", "layout", "loss", "stale", "healed"),
    *("gain", "gain_half_width_95", "codecs", "codec_to_ship", "took_s", "started"),
    *("differs", "command"),
)
STATES = ("running", "done", "cached", "interrupted", "failed", "damaged", "gone")
RESULT: dict[Outcome, str] = {
    "back": "the draft is back",
    "partly": "partly back",
    "worked": "worked",
    "unclear": "no clear gain",
    "worse": "made it worse",
    "measured": "measured only",
    "empty": "nothing measured",
}
# mypy has no name for what orders: numbers for one, text for another.
ORDERS: dict[Sort, Callable[[Heal], Any]] = {
    "started": lambda heal: -heal.started.timestamp(),
    "gain": lambda heal: -(heal.gain if heal.gain is not None else -9e9),
    "held": lambda heal: -(heal.held if heal.held is not None else -9e9),
    "took": lambda heal: -(heal.took_s or 0.0),
    "name": lambda heal: heal.asked.title.lower(),
}


@dataclass(frozen=True)
class Row:
    """A heal as the list spells it."""

    heal: Heal
    strip: Markup
    stale: str
    healed: str
    gain: str
    ship: str
    of: str  # how many codecs that one was chosen among
    took: str
    when: str
    differs: str
    result: str
    training: str  # layout and loss


@lru_cache(maxsize=4)
def book_of(depot: Depot) -> HealBook:
    """The depot's one book: it remembers configurations between requests."""
    return HealBook(depot)


@router.get("/", response_class=HTMLResponse, include_in_schema=False)
def heals(
    request: Request,
    depot: InDepot,
    q: str = "",
    state: str = "",
    sort: Sort = "started",
    pick: Annotated[tuple[str, ...], Query()] = (),
) -> Response:
    """The list of heals, and what runs now above it."""
    whole = book_of(depot).heals()
    shown = _chosen(whole, q, state, sort)
    axis, differs = _axis(shown), differing(whole)
    boxes = [box for box in map(live_of, whole) if box is not None]
    rows = [_row(heal, axis, differs[heal.id]) for heal in shown]
    trainings = {row.training for row in rows if row.training}
    return page(
        request, "heals.html", title="Heals", heals=whole, live=boxes, q=q, state=state,
        sort=sort, picked=set(pick),
        rows=rows, shared=next(iter(trainings)) if len(trainings) == 1 else "",
        axis=scale(axis, lambda tick: f"{tick:g}"), states=_states(whole),
        query=urlencode({"q": q, "state": state, "sort": sort}),
        links={n: "?" + urlencode({"q": q, "state": state, "sort": n}) for n in ORDERS},
    )  # fmt: skip


@router.get("/api/heals.{form}", tags=["heals"])
def heals_table(
    depot: InDepot, form: Format, q: str = "", state: str = "", sort: Sort = "started"
) -> Response:
    """The heals of the list, filtered and sorted as there."""
    whole = book_of(depot).heals()
    differs = differing(whole)
    rows = [_cells(heal, differs[heal.id]) for heal in _chosen(whole, q, state, sort)]
    return table_response(as_table(COLUMNS, rows), form, "heals")


@router.get("/api/heals/plots/held.svg", tags=["heals"])
def heals_plot(
    depot: InDepot, q: str = "", state: str = "", sort: Sort = "started"
) -> Response:
    """Drafts held of the list's heals, stale and healed on one axis, as an SVG file."""
    shown = _chosen(book_of(depot).heals(), q, state, sort)
    axis = _axis(shown)
    rows = [_row(heal, axis, "") for heal in shown]
    drawn, height = stacked(
        (StripRow(f"{row.heal.asked.title}, {row.when}", row.strip,
                  f"{row.stale} → {row.healed}") for row in rows),
        scale(axis, lambda tick: f"{tick:g}"),
    )  # fmt: skip
    if not drawn:
        raise NotHere("No heal of this list has measures to draw.")
    return svg_response(drawn, "heals-held", (720, height + 60))


def _chosen(heals: list[Heal], q: str, state: str, sort: Sort) -> list[Heal]:
    words = q.lower().split()
    found = [
        heal
        for heal in heals
        if (not state or heal.state == state) and all(word in _text(heal) for word in words)
    ]
    return sorted(found, key=ORDERS[sort])


def _text(heal: Heal) -> str:
    asked = heal.asked
    parts = (asked.title, *asked.data, asked.layout, asked.loss, heal.command, heal.id)
    return " ".join(parts).lower()


def _states(heals: list[Heal]) -> tuple[str, ...]:
    there = {heal.state for heal in heals}
    return tuple(state for state in STATES if state in there)


def _marks(heal: Heal) -> list[Mark]:
    if heal.report is None:
        return []
    measures = heal.report.measures
    return [
        Mark(name, measures[name].drafts_held, measures[name].interval)
        for name in ("stale", "healed")
        if name in measures
    ]


def _axis(heals: list[Heal]) -> Axis:
    values = [mark.value for heal in heals for mark in _marks(heal)]
    return nice_axis(values or [1.0], zero=True, intervals=4)


def _row(heal: Heal, axis: Axis, differs: str) -> Row:
    marks = {mark.draft: mark for mark in _marks(heal)}
    report = heal.report
    gain = None if report is None else report.gain
    ship = None if report is None else codec_to_ship(report)
    label = ", ".join(f"{mark.draft} {fixed(mark.value)}" for mark in marks.values())
    return Row(
        heal=heal,
        strip=strip(axis, list(marks.values()), label, 22) if marks else Markup(""),
        stale=fixed(marks["stale"].value) if "stale" in marks else ABSENT,
        healed=fixed(marks["healed"].value) if "healed" in marks else ABSENT,
        gain=ABSENT if gain is None else with_error(gain.value, gain.half_width),
        ship=ABSENT if ship is None else ship.codec,
        of="" if ship is None or report is None else f"of {len(report.codecs)}",
        took=took_text(heal.took_s),
        when=when(heal.started),
        differs=differs,
        result="" if report is None else RESULT[outcome(report)],
        training=" · ".join(filter(None, (heal.asked.layout, heal.asked.loss))),
    )


def when(time: datetime) -> str:
    """`today 20:18`, `yesterday 23:10`, `28 Nov 09:14`, `28 Nov 2025`, in local time."""
    local, now = time.astimezone(), datetime.now(UTC).astimezone()
    clock = f"{local:%H:%M}"
    if local.date() == now.date():
        return f"today {clock}"
    if local.date() == (now - timedelta(days=1)).date():
        return f"yesterday {clock}"
    day = f"{local.day} {local:%b}"
    return f"{day} {clock}" if local.year == now.year else f"{day} {local.year}"


def _cells(heal: Heal, differs: str) -> tuple[str | float | int | None, ...]:
    values = {mark.draft: mark.value for mark in _marks(heal)}
    gain = None if heal.report is None else heal.report.gain
    ship = None if heal.report is None else codec_to_ship(heal.report)
    return (
        heal.id, heal.asked.title, ", ".join(heal.asked.data), heal.state, heal.note,
        heal.asked.layout, heal.asked.loss, values.get("stale"), values.get("healed"),
        None if gain is None else gain.value, None if gain is None else gain.half_width,
        None if heal.report is None else len(heal.report.codecs),
        None if ship is None else ship.codec, heal.took_s, heal.started.isoformat(),
        differs, heal.command,
    )  # fmt: skip
