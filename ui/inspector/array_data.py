"""What one window of an array says: statistics, histogram, rows, channels, top-k."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ui.inspector.blocks import Values, WholeArray, window_values
from ui.inspector.depot import Depot, NotHere

Series = npt.NDArray[np.float64]
Kind = Literal["numbers", "shares", "flags", "whole numbers"]
KINDS: dict[str, Kind] = {"f": "numbers", "b": "flags", "u": "whole numbers",
                          "i": "whole numbers"}  # fmt: skip
BINS = 64
AT_ONCE = 1 << 15  # values that are put into bins together
MOST_VALUES = 1 << 27  # of a window; more would not fit beside everything else
OUTLIER = 5.0  # times the median channel

# What the arrays of a trunk's pass are, in a line for whoever opens one.
MEANINGS = {
    "hidden": "The trunk’s row of each token after its last layer: what a draft reads.",
    "topk_id": "The trunk’s likeliest next tokens by position: what a draft learns to say.",
    "topk_p": "How likely the trunk finds its likeliest next tokens: what a draft learns.",
    "logsumexp": "What turns the trunk’s scores of a position into probabilities.",
}


@dataclass(frozen=True)
class Block:
    """One window: rows are positions, channels all further axes, flattened."""

    array: WholeArray
    window: int
    values_RC: Values
    kind: Kind


@dataclass(frozen=True)
class Statistics:
    """Of the finite values of one window; None where there are none."""

    values: int
    not_finite: int
    zeros: int
    zero_rows: int
    least: float | None
    largest: float | None
    mean: float | None
    deviation: float | None


@dataclass(frozen=True)
class Channel:
    """A channel's root mean square, and how often the median channel's that is."""

    channel: int
    rms: float
    times: float


def read_block(depot: Depot, array: WholeArray, window: int) -> Block:
    """One window, one chunk. NotHere, ArtifactDamaged, Damaged."""
    if not array.info.shape:
        raise NotHere(f"{array.name} is a single value: there is no window to look at.")
    if math.prod(array.info.shape[1:]) > MOST_VALUES:
        raise NotHere(
            f"A window of {array.name} holds more than {MOST_VALUES:,} values, too many "
            "for a page; read a part of it with zarr."
        )
    values = np.asarray(window_values(depot, array, window))
    if values.dtype.kind not in KINDS:
        raise NotHere(f"{array.name} holds {values.dtype}, which has no plot.")
    rows = values.shape[0] if values.ndim else 1
    kind = KINDS[values.dtype.kind]
    if kind == "numbers" and array.name.endswith("_p") and values.ndim > 1:
        kind = "shares"
    return Block(array, window, values.reshape(rows, -1), kind)


def statistics_of(block: Block) -> Statistics:
    """Sums in f64, a part that fits the cache at a time."""
    values = block.values_RC
    finite = _finite(values).ravel()
    count, mean, squares = 0, 0.0, 0.0  # and of squares about the mean
    zeros, ends = 0, []
    for begin in range(0, finite.size, AT_ONCE):
        part = finite[begin : begin + AT_ONCE].astype(np.float64)
        ends += [part.min(), part.max()]
        zeros += part.size - int(np.count_nonzero(part))
        apart, own = float(part.mean()) - mean, count + part.size
        part -= part.mean()
        squares += float(part @ part) + apart * apart * count * part.size / own
        mean, count = mean + apart * part.size / own, own
    return Statistics(
        values.size,
        values.size - finite.size,
        zeros,
        int((~values.any(axis=1)).sum()),
        float(min(ends)) if ends else None,
        float(max(ends)) if ends else None,
        mean if ends else None,
        math.sqrt(squares / count) if ends else None,
    )


def _finite(values_RC: Values) -> Values:
    if values_RC.dtype.kind != "f":
        return values_RC
    is_finite = np.isfinite(values_RC)
    return values_RC if is_finite.all() else values_RC[is_finite]


def histogram_of(block: Block) -> tuple[Series, npt.NDArray[np.int64]]:
    """Edges [bins + 1] and counts [bins] of the finite values; both empty without any.

    Whole numbers get a bin each while they are few.
    """
    finite = _finite(block.values_RC).ravel()
    if not finite.size:
        return np.zeros(0), np.zeros(0, np.int64)
    low, high = float(finite.min()), float(finite.max())
    bins = BINS
    if block.kind in ("flags", "whole numbers") and high - low < BINS:
        bins = int(high - low) + 1
        low, high = low - 0.5, high + 0.5
    elif high == low:
        bins, high = 1, low + max(abs(low), 1.0) * 1e-3
    counts = np.zeros(bins, np.int64)
    # Bins by arithmetic, a part that fits the cache at a time: np.histogram takes longer.
    for begin in range(0, finite.size, AT_ONCE):
        part = finite[begin : begin + AT_ONCE].astype(np.float64)
        part -= low
        part *= bins / (high - low)
        place = part.astype(np.int64)
        counts += np.bincount(np.minimum(place, bins - 1, out=place), minlength=bins)
    return np.linspace(low, high, bins + 1), counts


def along(block: Block) -> tuple[str, Series]:
    """What a position is told by, [R]: its value, its norm, or what shares come to.

    Shares are summed over the last axis; several steps of a position are averaged.
    """
    values = block.values_RC
    if values.shape[1] == 1:
        return "value", values[:, 0].astype(np.float64)
    if block.kind == "flags":
        return "share true", values.mean(axis=1)
    if block.kind == "shares":
        steps = values.shape[1] // block.array.info.shape[-1]
        return "probability kept", values.sum(axis=1, dtype=np.float64) / steps
    return "norm", np.sqrt(_squares(values, "r"))


def channels_of(block: Block) -> Series:
    """Each channel's root mean square over the positions, [C]."""
    values = block.values_RC
    return np.sqrt(_squares(values, "c") / len(values))


def _squares(values_RC: npt.NDArray[Any], kept: str) -> Series:
    """Sums of squares over the other axis, in f64 without a copy of the whole."""
    total: Series = np.einsum(f"rc,rc->{kept}", values_RC, values_RC, dtype=np.float64)
    return total


def outliers_of(rms_C: Series, most: int = 6) -> tuple[Channel, ...]:
    """Channels of at least five times the median channel's root mean square, largest first.

    Channels that hold what is not finite are none: they have no such figure.
    """
    known = rms_C[np.isfinite(rms_C)]
    median = float(np.median(known)) if known.size else 0.0
    if median == 0.0:
        return ()
    times = np.where(np.isfinite(rms_C), rms_C / median, 0.0)
    ranked = np.argsort(-times, kind="stable")[:most]
    return tuple(
        Channel(int(c), float(rms_C[c]), float(times[c]))
        for c in ranked
        if times[c] >= OUTLIER
    )


@dataclass(frozen=True)
class TopRow:
    """One row's kept tokens, as stored; `step` from 1 where a position has several rows."""

    position: int
    step: int | None
    ids: tuple[int, ...]
    p: tuple[float, ...]


def top_pair(arrays: dict[str, WholeArray], name: str) -> tuple[str, str] | None:
    """The arrays of ids and probabilities that `name` is one of."""
    base = name.removesuffix("_id").removesuffix("_p")
    pair = f"{base}_id", f"{base}_p"
    if name not in pair or any(one not in arrays for one in pair):
        return None
    ids, p = (arrays[one] for one in pair)
    is_pair = ids.info.shape == p.info.shape and len(ids.info.shape) >= 3
    return pair if is_pair else None


def top_rows(ids: Block, p: Block, positions: range) -> tuple[TopRow, ...]:
    """The rows of some positions, a row a step."""
    kept = ids.array.info.shape[-1]
    found = []
    for position in positions:
        row_ids = ids.values_RC[position].reshape(-1, kept)
        row_p = p.values_RC[position].reshape(-1, kept)
        for step in range(len(row_ids)):
            found.append(
                TopRow(
                    position,
                    step + 1 if ids.array.info.shape[2:-1] else None,
                    tuple(row_ids[step].tolist()),
                    tuple(row_p[step].tolist()),
                )
            )
    return tuple(found)
