"""An evaluation shared among ranks: each measures some windows, all know every count.

Axes: W windows, T positions, C chain steps.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nets.draft import Draft
from nets.evaluate import Compute, Evaluation, evaluate
from nets.hold import HoldCounts, count_starts, count_walk
from nets.ranks import Ranks, Share
from nets.selection import SelectBy
from nets.source import Source, Windows


@dataclass(frozen=True)
class Tally:
    """What a draft did on all held-out windows, the same on every rank.

    Counts are whole numbers: they have no rounding, whoever measured a window. `kl_C` is
    the mean `tail_kl` of the rows that count, 0 for a step without any.
    """

    walk: HoldCounts
    starts: HoldCounts
    kl_C: tuple[float, ...]

    def chosen(self, select_by: SelectBy) -> HoldCounts:
        """The counts that checkpoints are compared by."""
        return self.walk if select_by == "walk" else self.starts


def own_windows(windows: Windows, batch: int, ranks: Ranks) -> Share:
    """The windows this rank measures: whole batches, cut where one process cuts them.

    So a window is in the same batch, and rounds alike, whoever measures it.
    """
    count = len(windows.index)
    batches = ranks.share(-(-count // batch))
    return Share(batches.start * batch, min(batches.stop * batch, count), count)


def tally(  # noqa: PLR0913, PLR0917 — as `evaluate`, and who shares the work
    draft: Draft,
    source: Source,
    windows: Windows,
    depth: int,
    compute: Compute,
    ranks: Ranks,
    on_windows: Callable[[int], None],
) -> Tally:
    """What the draft does on the windows; every rank measures its own of them.

    TrainingError as `evaluate`.
    """
    own = own_windows(windows, compute.batch, ranks)
    measured = Windows(tuple(own.of(windows.index)), tuple(own.of(windows.set_index)))
    if own.whole and not measured.index:
        return _joined(None, own, depth, ranks)
    found = evaluate(draft, source, measured, depth, compute, on_windows=on_windows)
    if ranks.size == 1:
        return Tally(count_walk(found.arrays), count_starts(found.arrays), found.kl_C)
    return _joined(found, own, depth, ranks)


def _joined(found: Evaluation | None, own: Share, depth: int, ranks: Ranks) -> Tally:
    walk_2WC = torch.zeros(2, own.whole, depth, dtype=torch.int64)
    starts_2WC = walk_2WC.clone()
    kl_sum_C = torch.zeros(depth, dtype=torch.float64)
    if found is not None:
        walk_2WC[:, own.start : own.stop] = _stacked(count_walk(found.arrays))
        starts_2WC[:, own.start : own.stop] = _stacked(count_starts(found.arrays))
        rows_C = torch.from_numpy(found.arrays.counted_WTC.sum((0, 1)))
        kl_sum_C = torch.tensor(found.kl_C, dtype=torch.float64) * rows_C
    walk, starts = (_counts(ranks.sum_(each)) for each in (walk_2WC, starts_2WC))
    rows_C = torch.from_numpy(starts.counted_WC.sum(0)).clamp_min(1)
    kl_C = tuple((ranks.sum_(kl_sum_C) / rows_C).tolist())
    return Tally(walk, starts, kl_C)


def _stacked(counts: HoldCounts) -> Tensor:
    return torch.stack([torch.from_numpy(n) for n in (counts.counted_WC, counts.hit_WC)])


def _counts(both_2WC: Tensor) -> HoldCounts:
    return HoldCounts(both_2WC[0].numpy(), both_2WC[1].numpy())
