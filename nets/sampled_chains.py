"""Whole chains under sampling, on text that the trunk sampled at their temperature.

Every row counts, weighed by how likely a draft had led there: each token that the chain was
fed by how often it would have been drafted and kept (healing.md §7).
Axes: W windows, B windows of one batch, T positions, C chain steps, R rows, K kept tokens;
4: low and high for a sampled draft, low and high for a greedy one.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from nets.acceptance import acceptance_rows, place_of, summed_by_window
from nets.chain import ChainStep
from nets.draft import Draft
from nets.evaluate import Compute
from nets.head import MeasuredRows, measure_rows
from nets.sampling import FloatArray, fed_acceptance, trunk_rows
from nets.source import Batch, Source, Windows, read_batch, take_rows


@dataclass(frozen=True)
class SampledChains:
    """Sums over the rows alive at each step, by window, and how many these are.

    The quotients added up over the steps are the drafts held a round.
    """

    kept_WC4: FloatArray
    alive_WC: NDArray[np.int64]


@torch.no_grad()
def sampled_chains(
    draft: Draft,
    source: Source,
    windows: Windows,
    depth: int,
    compute: Compute,
    temperature: float,
) -> SampledChains:
    """The chains from every row of windows sampled at this temperature, above 0."""
    device = draft.shared.head_VH.device
    kept, alive = [], []
    for start in range(0, len(windows.index), compute.batch):
        batch = read_batch(source, windows.index[start : start + compute.batch], device)
        shape = (batch.ids_BT.shape[0], batch.ids_BT.shape[1])
        weight_N4, kept_C, alive_C = np.ones((batch.ids_BT.numel(), 4)), [], []
        with compute.autocast(device):
            for step in batch.chains(draft, depth):
                one = _step(draft, batch, step, compute, temperature)
                at_R = one.at_R.cpu().numpy()
                weighed_R4 = weight_N4[at_R] * one.acceptance_R4
                kept_C.append(summed_by_window(weighed_R4, one.at_R, shape))
                alive_C.append(step.alive_BT.sum(1).cpu().numpy())
                weight_N4[at_R] *= one.fed_R4
        kept.append(np.stack(kept_C, 1))
        alive.append(np.stack(alive_C, 1))
    return SampledChains(np.concatenate(kept), np.concatenate(alive))


@dataclass(frozen=True)
class _Step:
    at_R: torch.Tensor
    acceptance_R4: FloatArray
    fed_R4: FloatArray


def _step(
    draft: Draft, batch: Batch, step: ChainStep, compute: Compute, temperature: float
) -> _Step:
    """Acceptance at a step, and of the token behind it, which the next step is fed."""
    rows = take_rows(batch, step, step.alive_BT)
    ids_N = batch.ids_BT.flatten()
    # Past a window's end it is some other token: no later step is alive to be fed it.
    next_R = ids_N[(rows.at_R + step.step + 1).clamp_max(len(ids_N) - 1)]
    # As one more kept token, of no mass: its q is read along with the others'.
    found = measure_rows(
        draft.read_out(rows.output_RH),
        draft.shared.head_VH,
        torch.cat([rows.topk_id_RK, next_R[:, None]], 1),
        torch.nn.functional.pad(rows.topk_p_RK, (0, 1)),
        compute.budget_bytes,
        (temperature,),
    )
    q_RK, next_q_R = found.tempered[0][:, :-1], found.tempered[0][:, -1]
    vocab = draft.shared.head_VH.shape[0]
    known = MeasuredRows(found.top, found.kl_R, (q_RK,))
    sampled, greedy = fed_acceptance(
        trunk_rows(rows.topk_p_RK.double().cpu().numpy(), vocab, temperature),
        next_q_R.double().cpu().numpy(),
        place_of(rows.topk_id_RK, next_R),
        is_first_R=(found.top.id_RK[:, 0] == next_R).cpu().numpy(),
    )
    return _Step(
        rows.at_R,
        acceptance_rows(rows, known, (temperature,), vocab)[:, 0],
        np.stack([sampled.low_R, sampled.high_R, greedy.low_R, greedy.high_R], -1),
    )
