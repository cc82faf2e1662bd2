"""A training's plots: each quantity over its steps, all on one axis of steps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from markupsafe import Markup

from ui.curves import Curve, Point, line_plot, lines_plot
from ui.figures import power_of_ten
from ui.inspector.training_data import Evaluation, Log, Number, Step

Record = TypeVar("Record", Step, Evaluation)


@dataclass(frozen=True)
class Figure:
    """A plot by its name in a URL, with its title, unit and what it means."""

    name: str
    title: str
    unit: str
    plot: Markup
    note: str = ""


@dataclass(frozen=True)
class Zoom:
    """The steps that are shown, both ends included."""

    start: int
    end: int


def figures(log: Log, zoom: Zoom) -> tuple[Figure, ...]:
    """Those that the shown part of the log has points for."""
    shown = log.between(zoom.start, zoom.end)
    found = (
        _held(shown, zoom),
        _kl(shown, zoom),
        _kinds(shown, zoom),
        _steps(shown, zoom, "loss", "Loss", "nats, each step", lambda one: one.loss),
        _rate(shown, zoom),
        _steps(shown, zoom, "norm", "Gradient norm", "before it is clipped to 1, each step",
               lambda one: one.grad_norm, zero=True),
    )  # fmt: skip
    return tuple(figure for figure in found if figure is not None)


def _held(shown: Log, zoom: Zoom) -> Figure | None:
    points = tuple(
        Point(one.step, one.held, one.interval)
        for one in shown.evaluations
        if one.held is not None
    )
    return _evaluated(shown, zoom, points, "held", "Drafts held", "a round, held-out text")


def _kl(shown: Log, zoom: Zoom) -> Figure | None:
    """One line for each chain step; a lone one with its dots."""
    title, unit = "Held-out KL", "nats, by chain step"
    depth = max((len(one.kl) for one in shown.evaluations), default=0)
    if depth == 1:
        points = _points(shown.evaluations, lambda one: one.kl[0])
        return _evaluated(shown, zoom, points, "kl", title, "nats")
    return _family(shown.evaluations, zoom, depth, "kl", (title, unit), lambda one: one.kl)


def _kinds(shown: Log, zoom: Zoom) -> Figure | None:
    """Of `rows` and `stride` layouts: what they train on, by the age of the inputs."""
    depth = max((len(one.kind_kl) for one in shown.evaluations), default=0)
    words = ("Held-out KL by kind of input", "nats, all rows")
    return _family(shown.evaluations, zoom, depth, "kinds", words, lambda one: one.kind_kl)


def _family(
    seen: Sequence[Evaluation], zoom: Zoom, count: int, name: str, words: tuple[str, str],
    read: Callable[[Evaluation], tuple[Number, ...]],
) -> Figure | None:  # fmt: skip
    curves = []
    for place in range(count):
        values = ((one.step, _nth(read(one), place)) for one in seen)
        points = tuple(Point(step, value) for step, value in values if value is not None)
        if points:
            curve = Curve(str(place + 1), points, is_dotted=True, start=zoom.start,
                          end=zoom.end)  # fmt: skip
            curves.append(curve)
    return Figure(name, *words, lines_plot(curves)) if curves else None


def _nth(values: tuple[Number, ...], place: int) -> Number:
    return values[place] if place < len(values) else None


def _rate(shown: Log, zoom: Zoom) -> Figure | None:
    """The learning rate in units of its peak's power of ten."""
    peak = max((one.lr or 0.0 for one in shown.steps), default=0.0)
    if peak <= 0:
        return None
    power = math.floor(math.log10(peak))

    def scaled(one: Step) -> Number:
        return None if one.lr is None else one.lr / 10.0**power

    unit = f"× {power_of_ten(power)}"
    return _steps(shown, zoom, "lr", "Learning rate", unit, scaled, zero=True)


def _evaluated(
    shown: Log, zoom: Zoom, points: tuple[Point, ...], name: str, title: str, unit: str
) -> Figure | None:
    if not points:
        return None
    chosen = next((point for point in points if point.step == shown.chosen), None)
    curve = Curve(title, points, chosen, is_dotted=True, start=zoom.start, end=zoom.end)
    return Figure(name, title, unit, line_plot(curve))


def _steps(  # noqa: PLR0913 — what a figure is called, and what it reads
    shown: Log,
    zoom: Zoom,
    name: str,
    title: str,
    unit: str,
    read: Callable[[Step], Number],
    *,
    zero: bool = False,
) -> Figure | None:
    points = _points(shown.steps, read)
    if not points:
        return None
    curve = Curve(title, points, zero=zero, start=zoom.start, end=zoom.end)
    return Figure(name, title, unit, line_plot(curve))


def _points(
    records: Sequence[Record], read: Callable[[Record], Number]
) -> tuple[Point, ...]:
    values = ((one.step, read(one)) for one in records)
    return tuple(Point(step, value) for step, value in values if value is not None)
