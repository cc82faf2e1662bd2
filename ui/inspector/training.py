"""A training: what was kept and how sure that is, its curves, live while it runs."""

from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from ui.answers import Answer
from ui.figures import ABSENT, counted, duration, fixed, span, with_error
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
from ui.inspector.heal_list import Heal
from ui.inspector.heals import book_of
from ui.inspector.live import values_of
from ui.inspector.training_data import Evaluation, Log, Number, Training, training_of
from ui.inspector.training_plots import Zoom, figures

router = APIRouter()

NO_INTERVALS = "This training kept no intervals: it is older than they are."
SHOWN = 40  # evaluations of a long list; the whole is in its CSV
TOLD_SETTINGS = ("layout", "loss", "select_by", "trainable", "optimizer", "lr", "batch",
                 "steps", "eval_every", "epochs", "depth", "seed")  # fmt: skip
From = Annotated[int, Query(alias="from", ge=0, le=10**9)]
To = Annotated[int | None, Query(ge=0, le=10**9)]
Plot = Literal["held", "kl", "kinds", "loss", "lr", "norm"]
Who = Literal["", "stale", "healed"]


@dataclass(frozen=True)
class Line:
    """An evaluation as the table spells it; `kl` by chain step."""

    step: str
    held: str
    interval: str
    kl: tuple[str, ...]
    is_chosen: bool


@router.get("/training/{stage}/{key}", response_class=HTMLResponse, include_in_schema=False)
def training(
    request: Request, depot: InDepot, stage: str, key: str, start: From = 0, to: To = None
) -> Response:
    """The training of a train_draft; `from` and `to` are the first and last step shown."""
    found = training_of(depot, stage, key)
    log = found.log
    zoom = _zoom(log, start, to)
    heals = _heals(depot, key)
    shown = log.between(zoom.start, zoom.end)
    return page(
        request, "training.html", title="Training", training=found, log=log, zoom=zoom,
        is_zoomed=zoom != Zoom(0, max(log.last, 1)), heals=heals,
        sentence=_sentence(found), answers=_answers(found, heals),
        figures=figures(log, zoom), links=_links(log),
        query=urlencode({"from": zoom.start, "to": zoom.end}),
        lines=_lines(shown), found=len(shown.evaluations),
        values=values_of(found.said), left=_left(found), settings=_settings(found),
    )  # fmt: skip


def _zoom(log: Log, start: int, to: int | None) -> Zoom:
    end = max(log.last, 1) if to is None else to
    if start >= end:
        raise NotHere(
            f"From step {start:,} to step {end:,} there is nothing to draw: `from` must "
            f"be smaller than `to`, and the last step is {log.last:,}."
        )
    return Zoom(start, end)


def _links(log: Log) -> tuple[tuple[str, str], ...]:
    """Parts of the training that are worth a look, as queries."""
    last = log.last
    if last < 4:
        return ()
    parts = [("first tenth", 0, max(last // 10, 1)), ("second half", last // 2, last)]
    if log.chosen:
        around = max(last // 10, 1)
        begin = max(log.chosen - around, 0)
        parts.append(("around the best", begin, min(log.chosen + around, last)))
    return tuple((text, urlencode({"from": a, "to": b})) for text, a, b in parts)


def _sentence(found: Training) -> tuple[tuple[Who, str], ...]:
    """What became of it, in phrases, those of a draft in its colour."""
    log = found.log
    first, best = log.at(0), log.at(log.chosen)
    if first is None or best is None or first.held is None or best.held is None:
        return (("", "No evaluation yet." if found.state != "done" else "No evaluation."),)
    if not log.chosen:
        text = "No checkpoint was clearly better than the start, so the starting draft"
        end = " was kept." if found.state == "done" else " is the best so far."
        held: tuple[Who, str] = ("stale", f"{fixed(best.held)} drafts held")
        return (("", f"{text}, "), held, ("", f",{end}"))
    verb = "was kept" if found.state == "done" else "is the best so far"
    return (
        ("", "Drafts held a round went from "), ("stale", fixed(first.held)), ("", " to "),
        ("healed", fixed(best.held)),
        ("", f" at step {log.chosen:,}; that checkpoint {verb}."),
    )  # fmt: skip


def _answers(found: Training, heals: tuple[Heal, ...]) -> tuple[Answer, ...]:
    log = found.log
    if not log.evaluations:
        return ()
    steps = counted(log.steps[-1].step if log.steps else 0, "step")
    asked = f" of {found.asked:,} asked for" if found.asked else ""
    skipped = (
        "Gradients that were not finite; they moved nothing and have no row in the log."
        if log.skipped
        else "Every gradient was finite."
    )
    return (
        Answer(
            "How far?", steps + asked, f"{counted(len(log.evaluations), 'evaluation')}."
        ),
        _sure(found, heals),
        _kl(log),
        Answer("Steps skipped?", f"{log.skipped:,}" if log.skipped else "None", skipped),
    )


def _sure(found: Training, heals: tuple[Heal, ...]) -> Answer:
    """The paired gain of a heal whose draft it is, else the best checkpoint's interval."""
    log = found.log
    told = [h.report for h in heals if h.report and h.report.run == found.entry.key]
    gain = next((report.gain for report in told if report.gain), None)
    if gain is not None:
        sure = with_error(gain.value, gain.half_width)
        return Answer("How sure?", sure, "Healed − stale, paired over windows, 95 %.")
    best = log.at(log.chosen)
    if best is None or best.interval is None:
        return Answer("How sure?", ABSENT, NO_INTERVALS)
    return Answer("How sure?", f"{fixed(best.interval[0])} to {fixed(best.interval[1])}",
                  "95 % interval of the best checkpoint’s drafts held.")  # fmt: skip


def _kl(log: Log) -> Answer:
    first, best = log.evaluations[0], log.at(log.chosen) or log.evaluations[-1]
    told = " → ".join(fixed(_first(one), 3) for one in (first, best))
    return Answer(
        "Closer to the trunk?", told, "Held-out KL of chain step 1, nats: start → best."
    )


def _first(one: Evaluation) -> Number:
    return one.kl[0] if one.kl else None


def _lines(shown: Log) -> tuple[Line, ...]:
    """The last evaluations of the shown part, and the chosen one wherever it is."""
    kept = [
        one
        for place, one in enumerate(shown.evaluations)
        if place >= len(shown.evaluations) - SHOWN or one.step in (0, shown.chosen)
    ]
    return tuple(
        Line(f"{one.step:,}", fixed(one.held, 3), span(one.interval, 3),
             tuple(fixed(v, 4) for v in one.kl), one.step == shown.chosen)
        for one in kept
    )  # fmt: skip


def _left(found: Training) -> str:
    left = found.said.get("left_s")
    return f"{duration(left)} left" if isinstance(left, int | float) else ""


def _settings(found: Training) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, str(found.settings[name]))
        for name in TOLD_SETTINGS
        if found.settings.get(name) is not None
    )


def _heals(depot: Depot, key: str) -> tuple[Heal, ...]:
    """The heals that made, found or are filling it, newest first."""
    return tuple(
        heal
        for heal in book_of(depot).heals()
        if heal.run
        and ("train_draft", key)
        in {
            *((one.name, one.key) for one in heal.run.record.events),
            *((one.name, one.key) for one in heal.run.record.filling),
        }
    )


@router.get("/api/training/{stage}/{key}/{table}.{form}", tags=["training"])
def training_table(  # noqa: PLR0913, PLR0917 — each is a part of the URL
    depot: InDepot,
    stage: str,
    key: str,
    table: str,
    form: Format,
    start: From = 0,
    to: To = None,
) -> Response:
    """`steps`, a row a counted step, or `evaluations`, of the steps `from` … `to`."""
    log = training_of(depot, stage, key).log
    zoom = _zoom(log, start, to)
    tables = _tables(log.between(zoom.start, zoom.end))
    return table_response(chosen_table(tables, table), form, f"training-{key[:8]}-{table}")


def _tables(shown: Log) -> dict[str, Table]:
    depth = max((len(one.kl) for one in shown.evaluations), default=0)
    kinds = max((len(one.kind_kl) for one in shown.evaluations), default=0)
    names = [f"kl_{j}" for j in range(1, depth + 1)]
    names += [f"kind_kl_{j}" for j in range(1, kinds + 1)]
    return {
        "steps": as_table(
            ("step", "loss", "lr", "grad_norm", "kind"),
            [(s.step, s.loss, s.lr, s.grad_norm, s.kind) for s in shown.steps],
        ),
        "evaluations": as_table(
            ("step", "drafts_held", "low_95", "high_95", *names, "is_chosen"),
            [(e.step, e.held, *(e.interval or (None, None)), *_filled(e.kl, depth),
              *_filled(e.kind_kl, kinds), e.step == shown.chosen)
             for e in shown.evaluations],
        ),
    }  # fmt: skip


def _filled(values: tuple[Number, ...], count: int) -> tuple[Number, ...]:
    return (*values, *(None,) * (count - len(values)))


@router.get("/api/training/{stage}/{key}/plots/{plot}.svg", tags=["training"])
def training_plot(
    depot: InDepot, stage: str, key: str, plot: Plot, start: From = 0, to: To = None
) -> Response:
    """A curve over the steps `from` … `to` as an SVG file."""
    log = training_of(depot, stage, key).log
    drawn = {one.name: one.plot for one in figures(log, _zoom(log, start, to))}
    if plot not in drawn:
        known = ", ".join(drawn) or "none"
        raise NotHere(f"There is no plot {plot!r} of these steps; there are: {known}.")
    return svg_response(drawn[plot], f"training-{key[:8]}-{plot}", (720, 240))
