"""The two wide arrays that passes over the head work in: one pair a thread, reused.

A fresh array of 100 MB costs more in page faults than the softmax that runs over it.
Axes: R rows, r rows of one block, V vocabulary, H hidden.
"""

import threading
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_ROWS, MOST_ROWS, ROW_STEP = 128, 4096, 32
# On a CPU a few rows are taken through softmax, loss and gradient while they lie in its
# cache: of five passes over memory two are left.
BLOCK_BYTES, LEAST_BLOCK_ROWS = 4 << 20, 8


@dataclass(frozen=True)
class WideBuffers:
    """Scratch: `product_RV` in the head's type for a slice, `wide_rV` in f32 for a block.

    With an f32 head there is no `wide_rV`: blocks are rows of the product itself.
    """

    product_RV: Tensor
    wide_rV: Tensor | None

    def holds(self, rows: int, head_VH: Tensor) -> bool:
        """Whether `rows` rows of logits of this head fit."""
        held_RV = self.product_RV
        block = min(rows, rows_per_block(head_VH))
        return (
            held_RV.shape[0] >= rows
            and held_RV.shape[1] == head_VH.shape[0]
            and held_RV.dtype == head_VH.dtype
            and held_RV.device == head_VH.device
            and (self.wide_rV is None or self.wide_rV.shape[0] >= block)
        )


class _ThreadBuffers(threading.local):
    held: WideBuffers | None = None


_thread = _ThreadBuffers()


def rows_per_block(head_VH: Tensor) -> int:
    """Rows whose f32 logits are worked on together; on an accelerator, all of a slice."""
    if head_VH.device.type != "cpu":
        return MOST_ROWS
    return max(BLOCK_BYTES // (4 * head_VH.shape[0]), LEAST_BLOCK_ROWS)


def rows_per_slice(head_VH: Tensor, budget_bytes: int) -> int:
    """Rows whose buffers fit the budget: a multiple of 32, at least 128, at most 4096.

    A GEMM over the head runs badly on fewer than 128, so a smaller budget is overdrawn; a
    coarser step would leave a seventh of the budget unused with a large vocabulary.
    """
    vocab, hidden = head_VH.shape
    # A row's logits, and the row and its gradient in the head's type and in f32.
    row_bytes = (vocab + 2 * hidden) * head_VH.dtype.itemsize + 8 * hidden
    left_bytes = budget_bytes
    if head_VH.dtype != torch.float32:
        if head_VH.device.type == "cpu":
            left_bytes -= 4 * vocab * rows_per_block(head_VH)
        else:
            row_bytes += 4 * vocab
    rows = left_bytes // row_bytes // ROW_STEP * ROW_STEP
    return min(max(rows, LEAST_ROWS), MOST_ROWS)


def wide_buffers(rows: int, head_VH: Tensor) -> WideBuffers:
    """The calling thread's buffers for `rows` rows of logits; what they held is lost."""
    if _thread.held is None or not _thread.held.holds(rows, head_VH):
        _thread.held = None  # freed before the next pair is allocated
        _thread.held = _allocate(rows, head_VH)
    held = _thread.held
    return WideBuffers(held.product_RV[:rows], held.wide_rV)


def _allocate(rows: int, head_VH: Tensor) -> WideBuffers:
    vocab, device = head_VH.shape[0], head_VH.device
    product_RV = torch.empty((rows, vocab), dtype=head_VH.dtype, device=device)
    if head_VH.dtype == torch.float32:
        return WideBuffers(product_RV, None)
    block = min(rows, rows_per_block(head_VH))
    wide_rV = torch.empty((block, vocab), dtype=torch.float32, device=device)
    return WideBuffers(product_RV, wide_rV)
