"""One heal: the verdict first, its evidence below, its lineage and command last."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from ui.answers import answers
from ui.contents import Report
from ui.evidence import codec_table, provenance_facts, training_figures
from ui.figures import day
from ui.inspector.answer import (
    Format,
    chosen_table,
    page,
    svg_response,
    table_response,
)
from ui.inspector.depot import Depot, InDepot, NotHere
from ui.inspector.heal_list import Heal, HealBook, took_text
from ui.inspector.heal_tables import heal_tables
from ui.inspector.heals import book_of
from ui.inspector.lineage import Lineage, Node, lineage_of
from ui.inspector.live import live_of
from ui.inspector.pareto import pareto_plot
from ui.inspector.reasons import earlier
from ui.inspector.rounds import DepthCurve, curves, rounds_plot, speed_plot
from ui.inspector.strips import StripRow, stacked
from ui.measure_tables import measure_tables
from ui.page import draft_table, hero, meanings, pair, step_blocks
from ui.verdict import doubts, verdict
from ui.wiring import wiring_table

router = APIRouter()

TOLD_REASONS = 2
Cost = Annotated[float, Query(gt=0, le=10)]
DraftCost = Annotated[float, Query(ge=0, le=10)]


@dataclass(frozen=True)
class Line:
    """A line of the configuration; `is_new` if the heal before had it otherwise."""

    text: str
    is_new: bool


@router.get("/heal/{name}", response_class=HTMLResponse, include_in_schema=False)
def heal(
    request: Request,
    depot: InDepot,
    name: str,
    verify: Cost | None = None,
    draft: DraftCost | None = None,
) -> Response:
    """A heal by its run's id or its report's key."""
    book = book_of(depot)
    found = book.heal(name)
    lineage = lineage_of(found, depot)
    before = _before(found, book)
    shared = {
        "heal": found, "lineage": lineage, "live": live_of(found), "reasons":
        _reasons(lineage, depot), "config": _lines(found, before), "before": before,
        "made": day(found.started.astimezone()), "took": took_text(found.took_s),
    }  # fmt: skip
    told = (
        {}
        if found.report is None
        else _report_values(found.report, *_costs(found.report, verify, draft))
    )
    return page(request, "heal.html", title=found.asked.title, report=found.report,
                **shared, **told)  # fmt: skip


def _costs(
    report: Report, verify: float | None, draft: float | None
) -> tuple[float, float]:
    """Those asked for, else the run's own; in plain decode steps."""
    own = report.cost
    return (
        own.verify if verify is None else verify,
        own.draft if draft is None else draft,
    )


def _report_values(report: Report, verify: float, draft: float) -> Mapping[str, object]:
    drawn = curves(report)
    return {
        "verdict": verdict(report), "answers": answers(report), "doubts": doubts(report),
        "hero": hero(report), "pair": pair(report), "drafts": draft_table(report),
        "steps": step_blocks(report), "rounds": rounds_plot(report),
        "speed": speed_plot(drawn, verify, draft) if drawn else Markup(""),
        "fastest": [(curve, curve.speed(verify, draft)) for curve in drawn],
        "verify": verify, "draft_cost": draft, "codecs": codec_table(report),
        "pareto": pareto_plot(report.codecs) if len(report.codecs) > 1 else Markup(""),
        "figures": training_figures(report.training)[:2] if report.training else (),
        "measured": measure_tables(report), "wiring": wiring_table(report.probe),
        "facts": provenance_facts(report), "meanings": meanings(report),
    }  # fmt: skip


def _before(heal: Heal, book: HealBook) -> Heal | None:
    """The heal of the same student before this one."""
    past = [
        one for one in book.heals()
        if one.asked.title == heal.asked.title
        and one.started < heal.started
        and one.id != heal.id
        and one.config
    ]  # fmt: skip
    return past[0] if past else None


def _lines(heal: Heal, before: Heal | None) -> tuple[Line, ...]:
    mine = heal.config.splitlines()
    if before is None:
        return tuple(Line(text, is_new=False) for text in mine)
    matcher = difflib.SequenceMatcher(
        None, before.config.splitlines(), mine, autojunk=False
    )
    kept = {b + i for _, b, n in matcher.get_matching_blocks() for i in range(n)}
    return tuple(Line(text, is_new=i not in kept) for i, text in enumerate(mine))


def _reasons(lineage: Lineage, depot: Depot) -> tuple[tuple[Node, str], ...]:
    """Of the stages that were made anew, the first few, with what differed."""
    found: list[tuple[Node, str]] = []
    waiting = {t for s, t in lineage.edges if lineage.nodes[s].was_made}
    for i, node in enumerate(lineage.nodes):
        is_root = node.was_made and i not in waiting and node.stage != "measure_draft"
        if len(found) < TOLD_REASONS and is_root and node.entry and node.entry.manifest:
            past = earlier(depot, node.entry.manifest)
            told = "nothing like it was in the store" if past is None else past.text()
            found.append((node, told))
    return tuple(found)


@router.get("/api/heals/{name}/{table}.{form}", tags=["heals"])
def heal_table(depot: InDepot, name: str, table: str, form: Format) -> Response:
    """A table of one heal: drafts, steps, rounds, depth, codecs, stages, provenance.

    In use: sampling, sampled-chains, first-four, places, vocabulary; and wiring.
    """
    found = book_of(depot).heal(name)
    tables = heal_tables(found, lineage_of(found, depot))
    return table_response(chosen_table(tables, table), form, f"{found.asked.title}-{table}")


@router.get("/api/heals/{name}/plots/{plot}.svg", tags=["heals"])
def heal_plot(
    depot: InDepot,
    name: str,
    plot: str,
    verify: Cost | None = None,
    draft: DraftCost | None = None,
) -> Response:
    """A plot of one heal as an SVG file: drafts, steps, rounds, speed, codecs, training."""
    found = book_of(depot).heal(name)
    report = found.report
    drawers: dict[str, Callable[[], Markup]] = {}
    if report is not None:
        drawers = {
            **_figures(report),
            "drafts": lambda: hero(report),
            "rounds": lambda: rounds_plot(report),
            "speed": lambda: _speed(curves(report), *_costs(report, verify, draft)),
            "codecs": lambda: pareto_plot(report.codecs) if report.codecs else Markup(""),
        }
    drawn = drawers[plot]() if plot in drawers else Markup("")
    height = 300
    if report is not None and plot == "steps":
        drawn, needed = stacked(*_step_rows(report))
        height = needed + 60
    if not drawn:
        known = ", ".join([*drawers, "steps"] if drawers else ["none"])
        raise NotHere(f"There is no plot {plot!r} here; there are: {known}.")
    return svg_response(drawn, f"{found.asked.title}-{plot}", (720, height))


def _figures(report: Report) -> dict[str, Callable[[], Markup]]:
    """The two curves of the training that the page shows."""
    shown = training_figures(report.training)[:2] if report.training else ()
    return {f"training-{n}": partial(Markup, f.plot) for n, f in enumerate(shown, start=1)}


def _step_rows(report: Report) -> tuple[list[StripRow], Markup]:
    """Hold rates by data set and chain step, with the scale that they share."""
    blocks = step_blocks(report)
    rows = [
        StripRow(f"{block.title}, step {line.step}", line.strip,
                 " → ".join(text for _, text in line.rates))
        for block in blocks for line in block.lines
    ]  # fmt: skip
    return rows, blocks[0].scale if blocks else Markup("")


def _speed(drawn: tuple[DepthCurve, ...], verify: float, draft: float) -> Markup:
    return speed_plot(drawn, verify, draft) if drawn else Markup("")
