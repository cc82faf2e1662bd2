"""Row 9: measuring the chains of every start exactly, against the stride-8 walk.

`python -m bench.measure_cost [--quick]`. The walk as the reference has it (healing.md §6,
`stride N`): chain rows overwrite the rows behind a start every N rows, so every start takes
N offsets of C forwards, and all rows go through the head at each offset. Ours is
`nets.evaluate.evaluate`, which also has the KL, four best tokens rescored in f32, and
their probabilities. The draft was trained a little first, on other windows: which rows are
alive depends on what it holds. Axes: W windows, T positions, C chain steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from bench.real_draft import (
    BATCH,
    DEPTH,
    compute,
    part_of,
    real_batch,
    real_draft,
    trained_tensors,
    width_of,
)
from bench.turns import (
    ALLOCATOR,
    OURS,
    Json,
    Round,
    main,
    median,
    race,
    ratio,
    rounds_of,
    seconds,
    target,
)
from nets.draft import Draft
from nets.evaluate import evaluate
from nets.hold import HoldArrays, count_walk, drafts_held, on_path, rates
from nets.source import Batch, Windows

MODULE, STRIDE = "bench.measure_cost", 8


def measure(*, quick: bool = False) -> Json:
    """How many times quicker the exact measure is; what both found."""
    width = width_of(quick=quick)
    real_batch(width)
    trained_tensors(quick=quick)
    size = "quick" if quick else "whole"
    names = [f"walk-{size}", f"{OURS}-{size}"]
    raced = race(MODULE, names, rounds_of(quick=quick))
    walk, ours = (raced[name] for name in names)
    times = ratio(walk, ours)
    return {
        "rows": {"9": target(times, "≥ 8", met=times >= 8)},
        "details": {
            "allocator": ALLOCATOR,
            "windows": [BATCH, width],
            "rounds": len(ours),
            "seconds": {"walk": median(walk), OURS: median(ours)},
            "found": {"walk": walk[0]["found"], OURS: ours[0]["found"]},
            "share of rows alive, by step": ours[0]["alive"],
        },
    }


@dataclass(frozen=True)
class _OneBatch:
    """The source of neighbouring windows of a batch."""

    whole: Batch

    def batch(self, windows: Sequence[int]) -> Batch:
        return part_of(self.whole, slice(windows[0], windows[-1] + 1))


def exact(*, quick: bool) -> Round:
    """Ours: all starts in one pass, only live rows through the head."""
    batch = real_batch(width_of(quick=quick))
    draft = real_draft(trained_tensors(quick=quick), torch.bfloat16)
    source, windows = _OneBatch(batch), Windows((0, 1), (0, 0))

    def play(_: int) -> Json:
        done: list[HoldArrays] = []
        spent = seconds(
            lambda: done.append(evaluate(draft, source, windows, DEPTH, compute()).arrays)
        )
        alive_C = done[0].counted_WTC.mean((0, 1))
        return {"seconds": spent, "found": said(done[0]), "alive": alive_C.tolist()}

    return play


def walk(*, quick: bool) -> Round:
    """The reference's, every offset of every window, in bf16."""
    batch = real_batch(width_of(quick=quick))
    draft = real_draft(trained_tensors(quick=quick), torch.bfloat16)

    def play(_: int) -> Json:
        done: list[HoldArrays] = []
        spent = seconds(lambda: done.append(walked(draft, batch)))
        return {"seconds": spent, "found": said(done[0])}

    return play


@torch.no_grad()
def walked(draft: Draft, batch: Batch) -> HoldArrays:
    """The chains from every start, an offset at a time; counted as healing.md §7 says."""
    own_WT = batch.topk_id_BTK[:, :, 0]
    width = own_WT.shape[1]
    right_WTC = torch.zeros((*own_WT.shape, DEPTH), dtype=torch.bool)
    with torch.autocast("cpu", torch.bfloat16):
        for offset in range(STRIDE):
            top_WT = spliced_tops(draft, batch, offset)
            for step in range(1, DEPTH + 1):
                start_S = torch.arange(offset, width - step, STRIDE)
                right_WTC[:, start_S, step - 1] = (
                    top_WT[:, start_S + step - 1] == own_WT[:, start_S + step]
                )
    length_W = batch.length_B.numpy()
    fed_WTC = on_path(batch.ids_BT.numpy(), own_WT.numpy(), length_W, DEPTH)
    held_WTC = np.logical_and.accumulate(right_WTC.numpy() & fed_WTC, axis=2)
    counted_WTC = fed_WTC.copy()
    counted_WTC[:, :, 1:] &= held_WTC[:, :, :-1]
    return HoldArrays(counted_WTC, held_WTC, length_W, np.zeros(len(length_W), np.int64))


def spliced_tops(draft: Draft, batch: Batch, offset: int) -> Tensor:
    """The draft's token at every row of windows with chains from this offset on, [W, T].

    Row q holds step j of the chain that starts at q - j + 1, or step 1 of its own.
    """
    width = batch.ids_BT.shape[1]
    position_1T = torch.arange(width)[None]
    token_WT = batch.ids_BT.roll(-1, 1)
    x_WTH = draft.fuse(token_WT, draft.trunk_rows(batch.hidden_BTH))
    for step in range(2, DEPTH + 1):
        output_WTH = draft.block(x_WTH, position_1T)
        row_S = torch.arange(offset, width - step, STRIDE) + step - 1
        carried_WSH = draft.chain_rows(output_WTH[:, row_S - 1])
        x_WTH[:, row_S] = draft.fuse(token_WT[:, row_S], carried_WSH)
    normed_WTH = draft.read_out(draft.block(x_WTH, position_1T))
    return torch.stack([_tops(draft, normed_TH) for normed_TH in normed_WTH])


def _tops(draft: Draft, normed_TH: Tensor) -> Tensor:
    logits_TV = normed_TH.bfloat16() @ draft.shared.head_VH.T
    return logits_TV.max(-1).indices  # torch's argmax of bf16 takes nearly three times it


def said(arrays: HoldArrays) -> Json:
    """Rates of the walk over rounds, and drafts held a round."""
    counts = count_walk(arrays)
    return {"rates": list(rates(counts)), "drafts held": drafts_held(counts)}


RACERS = {
    f"{name}-{size}": partial(build, quick=size == "quick")
    for size in ("quick", "whole")
    for name, build in (("walk", walk), (OURS, exact))
}

if __name__ == "__main__":
    main(measure, RACERS)
