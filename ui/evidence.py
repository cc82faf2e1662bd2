"""The later sections of the page, figures spelled: training, codecs, stages, provenance."""

import json
import math
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup
from pydantic import JsonValue

from ui.answers import best_codec
from ui.contents import CodecRow, Report, StageState, Training, TrainingRow
from ui.curves import Curve, Point, line_plot
from ui.figures import (
    ABSENT,
    digest,
    duration,
    fixed,
    percent,
    power_of_ten,
    scientific,
    sizes,
    span,
    with_error,
)
from ui.plots import Axis, Mark, bar, nice_axis, scale, strip

# Keys whose value says what it is.
SPEAKS_FOR_ITSELF = ("name", "sha256", "digest")


@dataclass(frozen=True)
class Figure:
    """A plot with its name and unit."""

    title: str
    unit: str
    plot: Markup


@dataclass(frozen=True)
class TrainingLine:
    """An evaluation: what was read there."""

    step: str
    held: str
    kl: str
    loss: str
    lr: str
    grad_norm: str
    is_chosen: bool


@dataclass(frozen=True)
class CodecLine:
    """A written file."""

    codec: str
    draft: str
    of_keep: str
    file: str
    held: str
    interval: str
    to_keep: str
    strip: Markup
    is_best: bool


@dataclass(frozen=True)
class CodecTable:
    """The written files, in the unit of the largest, on one axis."""

    unit: str
    file_unit: str
    lines: tuple[CodecLine, ...]
    scale: Markup


@dataclass(frozen=True)
class StageLine:
    """A stage of the run and its part of the time."""

    name: str
    label: str
    key: str
    state: StageState
    seconds: str
    bar: Markup


@dataclass(frozen=True)
class Fact:
    """A name and what stands behind it."""

    name: str
    value: str


def training_figures(training: Training) -> tuple[Figure, ...]:
    """Drafts held, held-out KL, loss and learning rate by step, those that the log has."""
    rows = training.rows
    evaluated = (
        _evaluated("Drafts held", "at each evaluation", _held_points(rows), training),
        _evaluated(
            "Held-out KL", "nats, at each evaluation", _points(rows, "kl"), training
        ),
    )
    loss = _every_step("Loss", "nats, each step", _points(rows, "loss"))
    return tuple(f for f in (*evaluated, loss, _rate_figure(rows)) if f is not None)


def _evaluated(
    title: str, unit: str, points: tuple[Point, ...], training: Training
) -> Figure | None:
    if not points:
        return None
    chosen = next((p for p in points if p.step == training.chosen_step), None)
    return Figure(
        title, unit, line_plot(Curve(title, points, chosen=chosen, is_dotted=True))
    )


def _every_step(
    title: str, unit: str, points: tuple[Point, ...], *, zero: bool = False
) -> Figure | None:
    return (
        Figure(title, unit, line_plot(Curve(title, points, zero=zero))) if points else None
    )


def _rate_figure(rows: tuple[TrainingRow, ...]) -> Figure | None:
    """The learning rate in units of its peak's power of ten."""
    points = _points(rows, "lr")
    peak = max((p.value for p in points), default=0.0)
    if peak <= 0:
        return None
    power = math.floor(math.log10(peak))
    scaled = tuple(Point(p.step, p.value / 10.0**power) for p in points)
    return _every_step("Learning rate", f"× {power_of_ten(power)}", scaled, zero=True)


def _points(
    rows: tuple[TrainingRow, ...], field: Literal["kl", "loss", "lr"]
) -> tuple[Point, ...]:
    values = ((row.step, getattr(row, field)) for row in rows)
    return tuple(Point(step, value) for step, value in values if value is not None)


def _held_points(rows: tuple[TrainingRow, ...]) -> tuple[Point, ...]:
    return tuple(Point(r.step, r.held, r.interval) for r in rows if r.held is not None)


def training_lines(training: Training) -> tuple[TrainingLine, ...]:
    """The evaluations, for the table behind the plots."""
    return tuple(
        TrainingLine(
            step=f"{row.step:,}",
            held=fixed(row.held, 3),
            kl=fixed(row.kl, 4),
            loss=fixed(row.loss, 4),
            lr=scientific(row.lr),
            grad_norm=fixed(row.grad_norm, 3),
            is_chosen=row.step == training.chosen_step,
        )
        for row in training.rows
        if row.held is not None or row.kl is not None
    )


def codec_table(report: Report) -> CodecTable | None:
    """The written files, largest draft first; None if nothing was written."""
    rows = sorted(report.codecs, key=lambda row: -row.draft_bytes)
    if not rows:
        return None
    keep = next((row for row in rows if row.codec == "keep"), None)
    axis = nice_axis(
        [end for row in rows for end in (row.drafts_held, *(row.interval or ()))]
    )
    drafts, files = (
        sizes([r.draft_bytes for r in rows]),
        sizes([r.file_bytes for r in rows]),
    )
    best = best_codec(report.codecs) if len(rows) > 1 else None
    lines = tuple(
        CodecLine(
            codec=row.codec,
            draft=draft,
            of_keep=_share_of(keep, row),
            file=file,
            held=fixed(row.drafts_held, 3),
            interval=span(row.interval, 3),
            to_keep=_to_keep(row),
            strip=_codec_strip(axis, row, keep),
            is_best=row is best,
        )
        for row, draft, file in zip(rows, drafts.texts, files.texts, strict=True)
    )
    labels = scale(axis, lambda tick: fixed(tick, axis.places))
    return CodecTable(drafts.unit, files.unit, lines, labels)


def _share_of(keep: CodecRow | None, row: CodecRow) -> str:
    if keep is None or keep.draft_bytes == 0:
        return ABSENT
    return percent(row.draft_bytes / keep.draft_bytes, 0)


def _codec_strip(axis: Axis, row: CodecRow, keep: CodecRow | None) -> Markup:
    held, interval = fixed(row.drafts_held, 3), span(row.interval, 3)
    mark = Mark("healed", row.drafts_held, row.interval)
    reference = None if keep is None else keep.drafts_held
    label = f"{row.codec}: {held} drafts held, 95 % {interval}"
    return strip(axis, [mark], label, reference=reference)


def _to_keep(row: CodecRow) -> str:
    if row.codec == "keep":
        return "reference"
    if row.to_keep is None:
        return ABSENT
    return with_error(row.to_keep.value, row.to_keep.se, 3)


def stage_lines(report: Report) -> tuple[StageLine, ...]:
    """The stages in the order they ran."""
    longest = max((stage.seconds for stage in report.stages), default=0.0)
    return tuple(
        StageLine(
            name=stage.name,
            label=stage.label,
            key=digest(stage.key),
            state=stage.state,
            seconds=duration(stage.seconds),
            bar=bar(stage.seconds / longest if longest else 0.0),
        )
        for stage in report.stages
    )


def provenance_facts(report: Report) -> tuple[Fact, ...]:
    """The header's provenance, digests shortened; the whole stands below them as JSON."""
    return tuple(
        Fact(name.replace("_", " "), _spell(value))
        for name, value in report.provenance.items()
    )


def _spell(value: JsonValue) -> str:
    if isinstance(value, bool) or value is None:
        return "none" if value is None else "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return scientific(value) if 0 < abs(value) < 1e-3 else f"{value:g}"
    if isinstance(value, str):
        return digest(value)
    if isinstance(value, list):
        return " · ".join(_spell(item) for item in value) or "none"
    return ", ".join(
        _spell(item) if name in SPEAKS_FOR_ITSELF else f"{name} {_spell(item)}"
        for name, item in value.items()
    )


def provenance_json(report: Report) -> str:
    """The provenance as the header holds it, indented."""
    return json.dumps(report.provenance, indent=2, ensure_ascii=False)
