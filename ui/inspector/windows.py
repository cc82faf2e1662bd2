"""A draft explained on text: one window's tokens, coloured by what the chains did."""

from collections.abc import Callable
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from markupsafe import Markup

from ui.inspector.answer import (
    Format,
    Table,
    as_table,
    chosen_table,
    page,
    svg_response,
    table_response,
)
from ui.inspector.depot import Depot, InDepot, NotHere
from ui.inspector.window_data import Measures, Window, gains, measures_of, read_window
from ui.inspector.window_plots import overview_plot, starts_plot
from ui.inspector.window_tables import chain_table, tokens_table, top4_table
from ui.inspector.window_view import VIEW, Panel, Shown, panel_of, start_of, tokens_of

router = APIRouter()

Colour = Annotated[str, Query(pattern=r"^(p|kept|[1-9][0-9]?)$")]
Place = Annotated[int | None, Query(ge=0)]


@router.get("/windows/{stage}/{key}", response_class=HTMLResponse, include_in_schema=False)
def windows(  # noqa: PLR0913 — each is a part of the URL
    request: Request,
    depot: InDepot,
    stage: str,
    key: str,
    *,
    w: Place = None,
    at: Place = None,
    draft: Shown = "healed",
    c: Colour = "1",
    by: Literal["gain", "loss"] | None = None,
) -> Response:
    """A window of a measure; `by` leads to the one with the largest gain or loss."""
    _refuse_other(stage)
    measures = measures_of(depot, key)
    _refuse_step(measures, c)
    here = f"/windows/{stage}/{key}"
    if by is not None:
        found = _extreme(depot, measures, by)
        return RedirectResponse(f"{here}?{urlencode({'w': found, 'draft': draft, 'c': c})}")
    index = _first(measures) if w is None else w
    window = read_window(depot, measures, index)
    place = _place(window, at, c)
    begin = place // VIEW * VIEW
    end = min(begin + VIEW, len(window.ids))
    return page(
        request, "windows.html", title=f"Window {index:,}", key=key, here=here,
        measures=measures, window=window, draft=draft, colour=c, at=place, begin=begin,
        end=end, tokens=tokens_of(window, draft, c, measures.spelling, begin),
        panel=panel_of(window, measures, place, c), start=start_of(place, c)[0],
        overview=overview_plot(window, measures.depth, begin, end) if window.chains else "",
        starts=starts_plot(window, measures.depth, begin, end, start_of(place, c)[0])
        if window.chains else "", near=_near(measures, index), query=_query,
    )  # fmt: skip


def _refuse_other(stage: str) -> None:
    if stage != "measure_draft":
        raise NotHere(f"Only a measure_draft explains a draft on text, not a {stage}.")


def _refuse_step(measures: Measures, c: str) -> None:
    if c.isdigit() and int(c) > measures.depth:
        raise NotHere(f"The chains have steps 1 to {measures.depth}, not {c}.")


def _place(window: Window, at: int | None, c: str) -> int:
    """The token asked for, the last one at most; unasked, one that has something to say."""
    return _telling(window, c) if at is None else min(at, len(window.ids) - 1)


def _query(w: int, at: int, draft: str, c: str) -> str:
    return urlencode({"w": w, "at": at, "draft": draft, "c": c})


def _first(measures: Measures) -> int:
    return measures.held_out[0] if measures.held_out else 0


def _telling(window: Window, colour: str) -> int:
    """The first token whose chain counts, so that the panel has something to say."""
    for chains in window.chains.values():
        starts = chains.counted[: len(window.ids), 0].nonzero()[0]
        if len(starts):
            start, step = int(starts[0]), int(colour) if colour.isdigit() else 1
            return min(start if colour == "kept" else start + step + 1, len(window.ids) - 1)
    return min(2, len(window.ids) - 1)


def _extreme(depot: Depot, measures: Measures, by: Literal["gain", "loss"]) -> int:
    ranked = gains(depot, measures)
    if not ranked:
        raise NotHere("Only one draft was measured on these windows: no gain to look for.")
    return ranked[0 if by == "gain" else -1][0]


def _near(measures: Measures, index: int) -> tuple[int | None, int | None]:
    """The held-out windows before and after."""
    before = [w for w in measures.held_out if w < index]
    after = [w for w in measures.held_out if w > index]
    return max(before, default=None), min(after, default=None)


@router.get("/api/windows/{stage}/{key}/{table}.{form}", tags=["windows"])
def window_table(  # noqa: PLR0913 — each is a part of the URL
    depot: InDepot,
    stage: str,
    key: str,
    table: str,
    form: Format,
    *,
    w: Place = None,
    at: Place = None,
    c: Colour = "1",
) -> Response:
    """`tokens` of one window, a row a token; `gains` of all held-out windows.

    `chain` and `top4` are of the chain that token `at` is coloured by.
    """
    _refuse_other(stage)
    measures = measures_of(depot, key)
    index = _first(measures) if w is None else w
    if table == "gains":
        made = as_table(("window", "gain"), gains(depot, measures))
    else:
        window = read_window(depot, measures, index)
        makers: dict[str, Callable[[], Table]] = {
            "tokens": lambda: tokens_table(window, measures),
            "chain": lambda: chain_table(_panel(window, measures, at, c)),
            "top4": lambda: top4_table(_panel(window, measures, at, c)),
        }
        made = chosen_table(makers, table)()
    return table_response(made, form, f"window-{index}-{table}")


def _panel(window: Window, measures: Measures, at: int | None, c: str) -> Panel:
    _refuse_step(measures, c)
    place = _place(window, at, c)
    found = panel_of(window, measures, place, c)
    if found is None:
        raise NotHere(f"No chain of this step reaches token {place:,}; pick another.")
    return found


@router.get("/api/windows/{stage}/{key}/plots/{plot}.svg", tags=["windows"])
def window_plot(
    depot: InDepot, stage: str, key: str, plot: Literal["kept", "starts"], w: Place = None
) -> Response:
    """Drafts kept along a window: `kept` smoothed, `starts` one by one."""
    _refuse_other(stage)
    measures = measures_of(depot, key)
    window = read_window(depot, measures, _first(measures) if w is None else w)
    drawn: Markup
    if plot == "kept":
        drawn = overview_plot(window, measures.depth, 0, 0)
    else:
        drawn = starts_plot(window, measures.depth, 0, len(window.ids), -1)
    return svg_response(drawn, f"window-{window.index}-{plot}", (960, 160))
