"""A draft's chains as they are: output rows and best tokens of every step, for a dump.

Axes: B windows, T positions, H hidden, R rows, K best tokens. healing.md §9.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from nets.chain import ChainStep
from nets.draft import Draft
from nets.evaluate import Compute
from nets.head import topk_rows
from nets.layouts import Laid, unroll_rows
from nets.source import Batch, refuse_unlike_alone

BEST = 4

Chained: TypeAlias = Literal["exact", "rows"]


@dataclass(frozen=True)
class DumpedStep:
    """One chain step of some windows, on the CPU; dead rows are zeros in all three.

    `output_BTH` is the block's raw output, f32; ids int32, probabilities f32, best first.
    """

    step: int
    output_BTH: Tensor
    top_id_BTK: Tensor
    top_p_BTK: Tensor


@torch.no_grad()
def dump_steps(
    draft: Draft, batch: Batch, layout: Chained, depth: int, compute: Compute
) -> Iterator[DumpedStep]:
    """Every step of the chains from all rows; only live rows go through the head.

    TrainingError for `rows` of records apart through a draft with experts.
    """
    head_VH = draft.shared.head_VH
    best = min(BEST, head_VH.shape[0])
    shape = (*batch.ids_BT.shape, best)
    with compute.autocast(batch.ids_BT.device):
        for step in _chains(draft, batch, layout, depth):
            alive_BT1 = step.alive_BT[:, :, None]
            output_BTH = step.output_BTH.float().masked_fill(~alive_BT1, 0.0)
            normed_RH = draft.read_out(step.output_BTH[step.alive_BT])
            top = topk_rows(normed_RH, head_VH, best, compute.budget_bytes)
            top_id_BTK = torch.zeros(shape, dtype=torch.int32, device=head_VH.device)
            top_p_BTK = torch.zeros(shape, device=head_VH.device)
            top_id_BTK[step.alive_BT] = top.id_RK.to(torch.int32)
            top_p_BTK[step.alive_BT] = top.p_RK
            yield DumpedStep(step.step, output_BTH.cpu(), top_id_BTK.cpu(), top_p_BTK.cpu())


def _chains(draft: Draft, batch: Batch, layout: Chained, depth: int) -> Iterator[ChainStep]:
    if layout == "exact":
        return batch.chains(draft, depth)
    refuse_unlike_alone(draft, batch, layout)
    laid = Laid(batch.ids_BT, batch.length_B, batch.record_BT)
    return unroll_rows(draft, laid, batch.hidden_BTH, depth)
