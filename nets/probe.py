"""Running one draft under every reading: wiring, and the order of `eh_proj`'s halves.

Axes: B windows of a batch, W windows, T positions, C chain steps, R rows.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from nets.agreement import NO_TOKEN
from nets.draft import Draft
from nets.evaluate import Compute
from nets.head import topk_rows
from nets.hold import IntArray
from nets.source import Batch, Source, read_batch
from nets.wiring import READINGS, Choices, Reading


def probe_readings(
    draft: Draft,
    source: Source,
    windows: Sequence[int],
    depth: int,
    compute: Compute,
    *,
    on_windows: Callable[[int], None] = lambda _: None,
) -> Choices:
    """What the draft names under each reading, on all rows of the windows.

    Of two windows at least. `on_windows` is told how many were done since its last call.
    """
    device = draft.shared.head_VH.device
    choices: dict[Reading, list[IntArray]] = {reading: [] for reading in READINGS}
    top1, lengths = [], []
    for start in range(0, len(windows), compute.batch):
        batch = read_batch(source, windows[start : start + compute.batch], device)
        for reading in READINGS:
            with read_as(draft, reading):
                choices[reading].append(_choices(draft, batch, depth, compute))
        top1.append(batch.topk_id_BTK[:, :, 0].cpu().numpy())
        lengths.append(batch.length_B.cpu().numpy())
        on_windows(len(batch.length_B))
    return Choices(
        {reading: np.concatenate(parts) for reading, parts in choices.items()},
        np.concatenate(top1),
        np.concatenate(lengths),
    )


@contextmanager
def read_as(draft: Draft, reading: Reading) -> Iterator[Draft]:
    """The draft under another reading for a while; then as it was, bit for bit."""
    own = draft.wiring
    draft.wiring = reading.wiring
    _set_order(draft, reading)
    try:
        yield draft
    finally:
        draft.wiring = own
        _set_order(draft, reading)


@torch.no_grad()
def _set_order(draft: Draft, reading: Reading) -> None:
    """Swaps the halves of `eh_proj`: a second time puts them back."""
    if reading.order == "hid_emb":
        weight_HX = draft.eh_proj.weight
        weight_HX.copy_(torch.cat(weight_HX.chunk(2, dim=1)[::-1], dim=1))


@torch.no_grad()
def _choices(draft: Draft, batch: Batch, depth: int, compute: Compute) -> IntArray:
    """The best token of every chain row, int64 [B, T, C]; `NO_TOKEN` on dead rows."""
    chosen_BTC = batch.ids_BT.new_full((*batch.ids_BT.shape, depth), NO_TOKEN)
    with compute.autocast(batch.ids_BT.device):
        for step in batch.chains(draft, depth):
            chosen_R = _best_tokens(draft, step.output_BTH[step.alive_BT], compute)
            chosen_BTC[:, :, step.step - 1][step.alive_BT] = chosen_R
    chosen: IntArray = chosen_BTC.cpu().numpy()
    return chosen


def _best_tokens(draft: Draft, output_RH: Tensor, compute: Compute) -> Tensor:
    normed_RH = draft.read_out(output_RH)
    top = topk_rows(normed_RH, draft.shared.head_VH, 1, compute.budget_bytes)
    return top.id_RK[:, 0].to(torch.int64)
