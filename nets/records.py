"""Records of one window kept apart: the place of each row in its own, and what it may see.

Legend: B windows, T positions. `record_BT` numbers the records of a window from 0, row by
row; padding on the right counts as part of the last. healing.md §4, `isolate`.
"""

import torch
from torch import Tensor


def positions_in(record_BT: Tensor) -> Tensor:
    """Each row's place in its own record, int64 [B, T]."""
    position_T = torch.arange(record_BT.shape[1], device=record_BT.device)
    is_first_BT = torch.ones_like(record_BT, dtype=torch.bool)
    is_first_BT[:, 1:] = record_BT[:, 1:] != record_BT[:, :-1]
    first_BT = torch.where(is_first_BT, position_T, 0).cummax(1).values
    return position_T - first_BT


def seen_in(record_BT: Tensor) -> Tensor:
    """What a row may look at: what is in its record up to itself, bool [B, T, T]."""
    width = record_BT.shape[1]
    causal_TT = torch.ones(width, width, dtype=torch.bool, device=record_BT.device).tril()
    return causal_TT & (record_BT[:, :, None] == record_BT[:, None, :])


def pieces_of(record_BT: Tensor) -> list[tuple[int, slice]]:
    """Every record as its window and its rows, in order."""
    found = []
    for window, record_T in enumerate(record_BT.cpu()):
        lengths = torch.unique_consecutive(record_T, return_counts=True)[1].tolist()
        start = 0
        for length in lengths:
            found.append((window, slice(start, start + length)))
            start += length
    return found
