"""The tables of one window of an array, for CSV and JSON; what is not finite is empty."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from ui.inspector.answer import Cell, Table, as_table
from ui.inspector.array_data import (
    Block,
    TopRow,
    along,
    channels_of,
    histogram_of,
    statistics_of,
)
from ui.inspector.spelling import Spelling


def statistics_table(block: Block) -> Table:
    """A row a figure, with the window that it is of."""
    told: dict[str, Cell] = dataclasses.asdict(statistics_of(block))
    return as_table(
        ("statistic", "value", "window"),
        [(name, _cell(value), block.window) for name, value in told.items()],
    )


def histogram_table(block: Block) -> Table:
    """A row a bin: from `low` to below `high`, the last with its end."""
    edges, counts = histogram_of(block)
    columns = edges[:-1].tolist(), edges[1:].tolist(), counts.tolist()
    return as_table(("low", "high", "count"), list(zip(*columns, strict=True)))


def rows_table(block: Block) -> Table:
    """A row a position: its norm (or value, or share true), least and largest value."""
    what, series = along(block)
    values = block.values_RC
    least, largest = values.min(axis=1).tolist(), values.max(axis=1).tolist()
    return as_table(
        ("position", what, "least", "largest"),
        [
            (at, _cell(one), _cell(least[at]), _cell(largest[at]))
            for at, one in enumerate(series.tolist())
        ],
    )


def channels_table(block: Block) -> Table:
    """A row a channel: root mean square over the positions, largest |value|."""
    largest = np.abs(block.values_RC).max(axis=0).tolist()
    return as_table(
        ("channel", "rms", "largest"),
        [
            (channel, _cell(rms), _cell(largest[channel]))
            for channel, rms in enumerate(channels_of(block).tolist())
        ],
    )


def top_table(rows: Sequence[TopRow], spelling: Spelling) -> Table:
    """A row a kept token; `step` is empty where a position has one row."""
    return as_table(
        ("position", "step", "rank", "id", "text", "p"),
        [
            (row.position, row.step, rank, token, spelling.text(token), _cell(p))
            for row in rows
            for rank, (token, p) in enumerate(zip(row.ids, row.p, strict=True), start=1)
        ],
    )


def _cell(value: Cell) -> Cell:
    is_gap = isinstance(value, float) and not math.isfinite(value)
    return None if is_gap else value
