"""What experiments showed: drafts held a round with intervals, as a page and as JSON.

Axes: N bootstrap draws of the held-out windows, the same for all cells of a table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from bench.experiment_cells import Result
from bench.turns import HOME
from conf.experiment import Experiment, Place
from nets.hold import (
    HoldArrays,
    count_starts,
    count_walk,
    drafts_held,
    drawn_drafts_held,
    rates,
)

PAGE, DATA = HOME / "docs" / "experiments.md", HOME / "docs" / "experiments.json"
COLUMNS = (
    "held, walk",
    "by seed",
    "gain over stale [95 %]",
    "over the first cell [95 %]",
    "by starts",
    "r1 / r2 / r3",
    "training",
)
MARK = "<!-- tables: python -m bench.experiments -->"


Spread = tuple[float, float, float]  # a value and its 95 % interval


@dataclass(frozen=True)
class Row:
    """A cell's means over seeds; `gain` is over the stale draft, `over` over cell 1.

    `sampled` bounds the first draft's acceptance where both sides sample at temperature 1.
    """

    cell: str
    walk: float
    starts: float
    by_seed: tuple[float, ...]
    gain: Spread
    over: Spread | None
    hold_rates: tuple[float, ...]
    seconds: float
    sampled: tuple[float, float] | None = None


@dataclass(frozen=True)
class Answer:
    """One table: an experiment at a place, measured on one ground."""

    experiment: str
    question: str
    demo: str
    measured: str
    seeds: tuple[int, ...]
    windows: int
    stale: float
    rows: tuple[Row, ...]


ANSWERS = TypeAdapter(list[Answer])


def answer(
    name: str,
    experiment: Experiment,
    place: Place,
    results: Mapping[tuple[int, int], Mapping[str, Result]],
    stale: Mapping[str, HoldArrays],
) -> list[Answer]:
    """A table for each ground the cells were measured on."""
    answers = []
    for ground, before in stale.items():
        draws_N = drawn_drafts_held(count_walk(before))
        cells = [
            [results[cell, seed][ground] for seed in place.seeds]
            for cell in range(len(experiment.cells))
        ]
        first = _mean_held(cells[0]), _mean_draws(cells[0])
        rows = tuple(
            _row(experiment.cells[i].name, heals, before, draws_N, first if i else None)
            for i, heals in enumerate(cells)
        )
        stale_held = drafts_held(count_walk(before))
        windows = len(before.length_W)
        place_facts = (place.demo, ground, place.seeds, windows, stale_held)
        answers.append(Answer(name, experiment.question, *place_facts, rows))
    return answers


def _row(
    name: str,
    heals: Sequence[Result],
    before: HoldArrays,
    stale_N: NDArray[np.float64],
    first: tuple[float, NDArray[np.float64]] | None,
) -> Row:
    walks = [count_walk(heal.holds) for heal in heals]
    held = [drafts_held(walk) for walk in walks]
    mean, mean_N = _mean_held(heals), _mean_draws(heals)
    gain = mean - drafts_held(count_walk(before))
    over = None if first is None else _with_interval(mean - first[0], mean_N - first[1])
    return Row(
        cell=name,
        walk=mean,
        starts=float(np.mean([drafts_held(count_starts(h.holds)) for h in heals])),
        by_seed=tuple(held),
        gain=_with_interval(gain, mean_N - stale_N),
        over=over,
        hold_rates=tuple(np.mean([rates(walk) for walk in walks], axis=0).tolist()),
        seconds=float(np.median([heal.seconds for heal in heals])),
        sampled=_mean_sampled(heals),
    )


def _mean_sampled(heals: Sequence[Result]) -> tuple[float, float] | None:
    told = [heal.sampled for heal in heals if heal.sampled]
    if not told:
        return None
    low, high = np.mean(told, axis=0)
    return float(low), float(high)


def _mean_held(heals: Sequence[Result]) -> float:
    return float(np.mean([drafts_held(count_walk(heal.holds)) for heal in heals]))


def _mean_draws(heals: Sequence[Result]) -> NDArray[np.float64]:
    """Mean over seeds of D in each draw, [N]."""
    drawn = [drawn_drafts_held(count_walk(heal.holds)) for heal in heals]
    return np.asarray(np.mean(drawn, axis=0))


def _with_interval(value: float, draws_N: NDArray[np.float64]) -> Spread:
    low, high = np.quantile(draws_N, [0.025, 0.975])
    return value, float(low), float(high)


def write_page(answers: Sequence[Answer]) -> None:
    """Keeps the page's own text and its other tables, and puts these below its mark."""
    kept = {_place(one): one for one in [*_written(), *answers]}
    tables = [one for _, one in sorted(kept.items())]
    DATA.write_bytes(ANSWERS.dump_json(tables, indent=1) + b"\n")
    text = PAGE.read_text() if PAGE.exists() else f"# Experiments\n\n{MARK}\n"
    head = text.split(MARK)[0]
    PAGE.write_text(head + MARK + "\n\n" + "\n".join(_table(one) for one in tables))


def _written() -> list[Answer]:
    return ANSWERS.validate_json(DATA.read_bytes()) if DATA.exists() else []


def _place(one: Answer) -> tuple[str, str, str]:
    return one.experiment, one.demo, one.measured


def _table(one: Answer) -> str:
    where = f", measured on {one.measured}" if one.measured else ""
    heads = ["cell", *COLUMNS]
    if sampled := any(row.sampled for row in one.rows):
        heads.append("sampled, first draft")
    return "\n".join(
        [
            f"### {one.experiment}: {one.demo}{where}",
            "",
            f"{one.question} Stale {one.stale:.3f} drafts held a round by the walk; "
            f"seeds {', '.join(map(str, one.seeds))}, {one.windows} held-out windows.",
            "",
            _joined(heads),
            "|" + "---|" * len(heads),
            *[_joined(_cells(row, sampled=sampled)) for row in one.rows],
            "",
        ]
    )


def _cells(row: Row, *, sampled: bool) -> Iterator[str]:
    yield row.cell
    yield f"{row.walk:.3f}"
    yield f"{min(row.by_seed):.3f}–{max(row.by_seed):.3f}"
    yield _spread(row.gain)
    yield "–" if row.over is None else _spread(row.over)
    yield f"{row.starts:.3f}"
    yield " / ".join(f"{rate:.3f}" for rate in row.hold_rates)
    yield f"{row.seconds:.0f} s"
    if sampled:
        yield "–" if row.sampled is None else "{:.3f}–{:.3f}".format(*row.sampled)


def _joined(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _spread(values: Spread) -> str:
    middle, low, high = values
    return f"{middle:+.3f} [{low:+.3f}, {high:+.3f}]"
