"""Which rows of a chain's later steps a training step learns from.

Axes: B windows, T positions, C chain steps.
"""

import torch
from torch import Tensor

from conf.training import TrainSettings
from nets.ranks import Share
from nets.schedule import SEED_SPREAD
from nets.source import Batch, fed_own_tokens


def trained_rows(
    settings: TrainSettings, step: int, batch: Batch, share: Share
) -> Tensor | None:
    """Rows that may reach the head, bool [B, T, C], step 1 always whole; None: all rows.

    `share` says which windows of the step's batch these are. `on_path` leaves out chains
    that a decode would never run, fed with a token that isn't the trunk's own. `anchors`
    keeps that share of the starts, drawn anew for every step from the seed and the step
    alone, so that a resumed run draws the same, and for the whole batch, so that a window
    has the same rows whoever trains on it.
    """
    if settings.anchors is None and not settings.on_path:
        return None
    chosen_BTC = torch.ones(
        (*batch.ids_BT.shape, settings.depth), dtype=torch.bool, device=batch.ids_BT.device
    )
    if settings.on_path:
        chosen_BTC &= fed_own_tokens(batch, settings.depth)
    if settings.anchors is not None:
        # torch's generator reads the low 32 bits of a seed alone.
        drawn_from = (settings.seed * SEED_SPREAD + step) & 0xFFFFFFFF
        generator = torch.Generator().manual_seed(drawn_from)
        shape = (share.whole, batch.ids_BT.shape[1])
        drawn_BT = torch.rand(shape, generator=generator) < settings.anchors
        drawn_BT = drawn_BT[share.start : share.stop]
        chosen_BTC &= drawn_BT.to(chosen_BTC.device)[:, :, None]
    chosen_BTC[:, :, 0] = True
    return chosen_BTC
