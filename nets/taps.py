"""Taps: the output rows of chosen trunk layers, before any norm (healing.md §5).

Legend: B windows, L layers, T positions, H hidden.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from nets.stream import Call, Passed, StreamedTrunk
from nets.trunk import Trunk


def tap_rows(
    trunk: Trunk | StreamedTrunk, calls: Sequence[Call], layers: Sequence[int]
) -> list[Tensor]:
    """What the layers named hand on to the next, f32 [B, L, T, H] of each call.

    Layers count from 0 and are given in the order named; none behind the last of them
    runs. Rows of padding on the right are there, and mean nothing.
    """
    kept: list[dict[int, Tensor]] = [{} for _ in calls]

    def passed(layer: int, call: int, rows_BTH: Tensor) -> None:
        if layer in layers:
            kept[call][layer] = rows_BTH

    count = max(layers) + 1
    if isinstance(trunk, StreamedTrunk):
        trunk.hidden(calls, passed, count)
    else:
        for number, call in enumerate(calls):
            own = partial(_numbered, passed, number)
            trunk.hidden(call.ids_BT, call.record_BT, own, count)
    return [torch.stack([rows[layer] for layer in layers], dim=1) for rows in kept]


def _numbered(passed: Passed, call: int, layer: int, rows_BTH: Tensor) -> None:
    passed(layer, call, rows_BTH)
