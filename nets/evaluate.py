"""Measuring a draft: which chain rows count and hit, the four best tokens, and the KL.

Axes: W windows, B windows of one batch, T positions, C chain steps, R rows, K kept tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nets.acceptance import above_zero, acceptance_rows, summed_by_window
from nets.draft import Draft
from nets.errors import TrainingError
from nets.head import MeasuredRows, measure_rows
from nets.hold import HoldArrays
from nets.source import (
    Batch,
    ChainRows,
    Source,
    Windows,
    fed_own_tokens,
    read_batch,
    take_rows,
)


@dataclass(frozen=True)
class Compute:
    """How to run a draft: windows a batch, type of its GEMMs, bytes for head slices."""

    batch: int
    dtype: Literal["bf16", "f32"]
    budget_bytes: int

    def autocast(self, device: torch.device) -> torch.autocast:
        """The context the draft's f32 masters are used in."""
        return torch.autocast(device.type, torch.bfloat16, enabled=self.dtype == "bf16")


@dataclass(frozen=True)
class Evaluation:
    """What the chains from all rows of the windows did.

    `kl_C` is the mean `tail_kl` of the rows that count, 0 for a step without any.
    `top_id_WTC4` and `top_p_WTC4` are the draft's four best tokens, zeros on other rows;
    `place_WTC` where among them the trunk's own is, from 1, 0 where it is not. Sampling
    acceptance is summed over the rows that count, [W, C, temperatures, 4]
    (`nets.acceptance`).
    """

    arrays: HoldArrays
    kl_C: tuple[float, ...]
    top_id_WTC4: NDArray[np.int32]
    top_p_WTC4: NDArray[np.float32]
    place_WTC: NDArray[np.uint8]
    acceptance_WCN4: NDArray[np.float64]


@dataclass(frozen=True)
class _Marks:
    """A batch's share of an `Evaluation`, filled step by step."""

    counted_BTC: Tensor
    hit_BTC: Tensor
    top_id_BTC4: Tensor
    top_p_BTC4: Tensor
    place_BTC: Tensor
    kl_sum_C: Tensor
    acceptance_BCN4: NDArray[np.float64]

    def fill(self, c: int, rows: ChainRows, found: MeasuredRows) -> None:
        """Write what the rows that count did at step c + 1."""
        is_hit_R = found.top.id_RK[:, 0] == rows.topk_id_RK[:, 0]
        self.counted_BTC.flatten(0, 1)[rows.at_R, c] = True
        self.hit_BTC.flatten(0, 1)[rows.at_R, c] = is_hit_R
        best = found.top.id_RK.shape[1]
        self.top_id_BTC4.flatten(0, 1)[rows.at_R, c, :best] = found.top.id_RK
        self.top_p_BTC4.flatten(0, 1)[rows.at_R, c, :best] = found.top.p_RK
        is_own_R4 = found.top.id_RK == rows.topk_id_RK[:, :1]
        place_R = torch.where(is_own_R4.any(1), is_own_R4.int().argmax(1) + 1, 0)
        self.place_BTC.flatten(0, 1)[rows.at_R, c] = place_R.to(torch.uint8)
        self.kl_sum_C[c] = found.kl_R.sum(dtype=torch.float64)


def evaluate(  # noqa: PLR0913 — what to measure on what, how, and whom to tell
    draft: Draft,
    source: Source,
    windows: Windows,
    depth: int,
    compute: Compute,
    *,
    temperatures: Sequence[float] = (),
    on_windows: Callable[[int], None] = lambda _: None,
) -> Evaluation:
    """What the draft's chains from every row of the windows do, to this depth.

    Only rows that count go through the head. `on_windows` is told how many windows were
    done since its last call. TrainingError for no windows, or rows that aren't finite.
    """
    if not windows.index:
        raise TrainingError("no held-out window to measure on; give more data")
    device = draft.shared.head_VH.device
    marks, lengths, records = [], [], []
    for start in range(0, len(windows.index), compute.batch):
        batch = read_batch(source, windows.index[start : start + compute.batch], device)
        marks.append(_measure_batch(draft, batch, depth, compute, temperatures))
        lengths.append(batch.length_B.cpu())
        if batch.record_BT is not None:
            records.append(batch.record_BT[:, -1].cpu() + 1)
        on_windows(len(batch.length_B))
    return _joined(
        marks, torch.cat(lengths), torch.cat(records) if records else None, windows
    )


@torch.no_grad()
def _measure_batch(
    draft: Draft,
    batch: Batch,
    depth: int,
    compute: Compute,
    temperatures: Sequence[float],
) -> _Marks:
    fed_BTC = fed_own_tokens(batch, depth)
    marks = _blank_marks(fed_BTC, len(temperatures))
    vocab = draft.shared.head_VH.shape[0]
    live_BT = torch.ones_like(fed_BTC[:, :, 0])
    with compute.autocast(batch.ids_BT.device):
        for step in batch.chains(draft, depth):
            c = step.step - 1
            live_BT = live_BT & fed_BTC[:, :, c]
            rows = take_rows(batch, step, live_BT)
            found = measure_rows(
                draft.read_out(rows.output_RH),
                draft.shared.head_VH,
                rows.topk_id_RK,
                rows.topk_p_RK,
                compute.budget_bytes,
                above_zero(temperatures),
            )
            marks.fill(c, rows, found)
            marks.acceptance_BCN4[:, c] = summed_by_window(
                acceptance_rows(rows, found, temperatures, vocab),
                rows.at_R,
                (len(live_BT), live_BT.shape[1]),
            )
            live_BT = marks.hit_BTC[:, :, c]
    return marks


def _blank_marks(fed_BTC: Tensor, temperatures: int) -> _Marks:
    shape, device = tuple(fed_BTC.shape), fed_BTC.device
    return _Marks(
        counted_BTC=torch.zeros_like(fed_BTC),
        hit_BTC=torch.zeros_like(fed_BTC),
        top_id_BTC4=torch.zeros((*shape, 4), dtype=torch.int32, device=device),
        top_p_BTC4=torch.zeros((*shape, 4), device=device),
        place_BTC=torch.zeros(shape, dtype=torch.uint8, device=device),
        kl_sum_C=torch.zeros(shape[2], dtype=torch.float64, device=device),
        acceptance_BCN4=np.zeros((shape[0], shape[2], temperatures, 4)),
    )


def _joined(
    marks: Sequence[_Marks],
    length_W: Tensor,
    records_W: Tensor | None,
    windows: Windows,
) -> Evaluation:
    counted_WTC = torch.cat([mark.counted_BTC for mark in marks])
    rows_C = counted_WTC.sum((0, 1)).clamp_min(1)
    kl_C = torch.stack([mark.kl_sum_C for mark in marks]).sum(0) / rows_C
    arrays = HoldArrays(
        counted_WTC.cpu().numpy(),
        torch.cat([mark.hit_BTC for mark in marks]).cpu().numpy(),
        length_W.numpy(),
        np.asarray(windows.set_index, np.int64),
        None if records_W is None else records_W.numpy(),
    )
    return Evaluation(
        arrays,
        tuple(kl_C.tolist()),
        torch.cat([mark.top_id_BTC4 for mark in marks]).cpu().numpy(),
        torch.cat([mark.top_p_BTC4 for mark in marks]).cpu().numpy(),
        torch.cat([mark.place_BTC for mark in marks]).cpu().numpy(),
        np.concatenate([mark.acceptance_BCN4 for mark in marks]),
    )
