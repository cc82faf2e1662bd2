"""Which reading of a draft it was made for, and whether that can be told; numpy only.

Axes: W windows, T positions, C chain steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np

from conf.base import Wiring
from nets.agreement import (
    Agreement,
    agreement,
    behind,
    chance_rates,
    low_rates,
    shifted,
    targets,
)
from nets.hold import FloatArray, IntArray, Interval

Order = Literal["emb_hid", "hid_emb"]
ControlName = Literal["shifted", "foreign"]
# clear: one reading beats all others by more than counts; same: some are as good.
Outcome = Literal["clear", "same", "unclear", "swapped", "nothing", "leak"]
# Readings that differ by less than this share of what they hold are the same to a user.
SAME_SHARE = 0.02


@dataclass(frozen=True)
class Reading:
    """A wiring, and whether `eh_proj` reads the embedding first or the hidden row."""

    wiring: Wiring
    order: Order


ORDERS: tuple[Order, ...] = ("emb_hid", "hid_emb")
SIDES: tuple[Literal["raw", "normed"], ...] = ("raw", "normed")
READINGS = tuple(
    Reading(Wiring(hidden=hidden, chain=chain), order)
    for order, hidden, chain in product(ORDERS, SIDES, SIDES)
)


@dataclass(frozen=True)
class Choices:
    """A draft's best token at every step of every row [W, T, C], by reading.

    `NO_TOKEN` where the chain has no row. `top1_WT` are the trunk's own choices.
    """

    by_reading: Mapping[Reading, IntArray]
    top1_WT: IntArray
    length_W: IntArray


@dataclass(frozen=True)
class ReadingLine:
    """What a draft names under one reading; `drafts` is the sum over the chain's steps.

    `behind`: how many drafts fewer than the best reading names, a paired 99 % interval.
    """

    reading: Reading
    rate_C: tuple[float, ...]
    drafts: float
    behind: Interval


@dataclass(frozen=True)
class Control:
    """What the best reading names of targets it cannot know, and the interval's low end."""

    name: ControlName
    rate_C: tuple[float, ...]
    low_C: tuple[float, ...]


@dataclass(frozen=True)
class Found:
    """A probe's table, and what it comes to; `reading` is None if that is none to use.

    `chance_C`: what naming each window's commonest target would hold.
    """

    outcome: Outcome
    reading: Reading | None
    lines: tuple[ReadingLine, ...]
    controls: tuple[Control, ...]
    chance_C: tuple[float, ...]
    rows_C: tuple[int, ...]


def compare_readings(choices: Choices, convention: Wiring) -> Found:
    """The table of a draft under each reading, and the verdict.

    `convention` is taken where the readings that can't be told apart are as good.
    """
    target_WTC = _targets_of(choices)
    found = {one: agreement(c, target_WTC) for one, c in choices.by_reading.items()}
    best = max(found, key=lambda one: found[one].drafts)
    lines = tuple(_line(one, found[one], found[best]) for one in found)
    controls = _controls(choices, best)
    chance_C = chance_rates(target_WTC)
    outcome, reading = verdict_of(lines, convention)
    if low_rates(found[best])[0] <= chance_C[0]:
        outcome, reading = "nothing", None
    elif any((np.asarray(control.low_C) > chance_C).any() for control in controls):
        outcome, reading = "leak", None
    return Found(
        outcome,
        reading,
        lines,
        controls,
        _plain(chance_C),
        tuple(int(n) for n in found[best].rows_NC.sum(0)),
    )


def _line(reading: Reading, found: Agreement, best: Agreement) -> ReadingLine:
    return ReadingLine(reading, _plain(found.rates), found.drafts, behind(found, best))


def _targets_of(choices: Choices) -> IntArray:
    depth = next(iter(choices.by_reading.values())).shape[2]
    return targets(choices.top1_WT, choices.length_W, depth)


def _controls(choices: Choices, best: Reading) -> tuple[Control, ...]:
    """The same choices against targets half a window on, and those of the next window."""
    moved_WT = shifted(choices.top1_WT, choices.length_W)
    wrong: dict[ControlName, IntArray] = {
        "shifted": _targets_of(replace(choices, top1_WT=moved_WT)),
        "foreign": np.roll(_targets_of(choices), -1, axis=0),
    }
    found = {n: agreement(choices.by_reading[best], t) for n, t in wrong.items()}
    return tuple(
        Control(name, _plain(one.rates), _plain(low_rates(one)))
        for name, one in found.items()
    )


def verdict_of(
    lines: Sequence[ReadingLine], convention: Wiring
) -> tuple[Outcome, Reading | None]:
    """Whether one reading wins, and which is used.

    A reading is as good as the best if the interval of what it lacks ends within
    `SAME_SHARE` of what the best names, and beaten if that interval leaves zero out.
    """
    same = SAME_SHARE * max(line.drafts for line in lines)
    rivals = [line for line in lines if line.behind.low <= 0 or line.behind.high <= same]
    if any(line.behind.high > same for line in rivals):
        return "unclear", None
    ranked = sorted(rivals, key=lambda line: _preference(line, convention))
    chosen = ranked[0].reading
    if chosen.order == "hid_emb":
        return "swapped", chosen
    return ("clear" if len(rivals) == 1 else "same"), chosen


def _preference(line: ReadingLine, convention: Wiring) -> tuple[bool, bool, float]:
    """Among equals: the format's order, then its wiring, then what names most."""
    reading = line.reading
    return (reading.order != "emb_hid", reading.wiring != convention, -line.drafts)


def _plain(values: FloatArray) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
