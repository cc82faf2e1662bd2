"""The two wide arrays that passes over the head work in: one pair a thread, reused.

A fresh array of 100 MB costs more in page faults than the softmax that runs over it.
Axes: R rows, V vocabulary, H hidden.
"""

import threading
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_ROWS, MOST_ROWS, ROW_STEP = 128, 2048, 32


@dataclass(frozen=True)
class WideBuffers:
    """Scratch for R rows: `wide_RV` in f32, `low_RV` in the head's type (None if f32)."""

    wide_RV: Tensor
    low_RV: Tensor | None

    def first(self, rows: int) -> "WideBuffers":
        """The same memory, seen as `rows` rows."""
        low_RV = self.low_RV
        return WideBuffers(self.wide_RV[:rows], None if low_RV is None else low_RV[:rows])

    def holds(self, rows: int, head_VH: Tensor) -> bool:
        """Whether `rows` rows of logits of this head fit."""
        low_RV = self.wide_RV if self.low_RV is None else self.low_RV
        return (
            self.wide_RV.shape[0] >= rows
            and self.wide_RV.shape[1] == head_VH.shape[0]
            and low_RV.dtype == head_VH.dtype
            and low_RV.device == head_VH.device
        )


class _ThreadBuffers(threading.local):
    held: WideBuffers | None = None


_thread = _ThreadBuffers()


def rows_per_slice(head_VH: Tensor, budget_bytes: int) -> int:
    """Rows whose buffers fit the budget: a multiple of 32, at least 128, at most 2048.

    A GEMM over the head runs badly on fewer than 128, so a smaller budget is overdrawn; a
    coarser step would leave a seventh of the budget unused with a large vocabulary.
    """
    is_single = head_VH.dtype == torch.float32
    row_bytes = head_VH.shape[0] * (4 if is_single else 4 + head_VH.dtype.itemsize)
    rows = budget_bytes // row_bytes // ROW_STEP * ROW_STEP
    return min(max(rows, LEAST_ROWS), MOST_ROWS)


def wide_buffers(rows: int, head_VH: Tensor) -> WideBuffers:
    """The calling thread's buffers for logits of `rows` rows; what they held is lost."""
    if _thread.held is None or not _thread.held.holds(rows, head_VH):
        _thread.held = None  # freed before the next pair is allocated
        _thread.held = _allocate(rows, head_VH)
    return _thread.held.first(rows)


def _allocate(rows: int, head_VH: Tensor) -> WideBuffers:
    shape, device = (rows, head_VH.shape[0]), head_VH.device
    wide_RV = torch.empty(shape, dtype=torch.float32, device=device)
    if head_VH.dtype == torch.float32:
        return WideBuffers(wide_RV, None)
    return WideBuffers(wide_RV, torch.empty(shape, dtype=head_VH.dtype, device=device))
