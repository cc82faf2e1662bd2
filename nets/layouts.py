"""The reference's chain layouts, `rows` and `stride N`: a window is one sequence.

Both are approximate where `nets.chain.unroll_exact` is what a decode has (healing.md §6).
Nothing here sends a gradient from a step to the one before. Axes: B windows, T positions,
H hidden.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nets.chain import ChainBlock, ChainStep, alive_rows
from nets.records import positions_in, seen_in


@dataclass(frozen=True)
class Laid:
    """Windows as the block reads them at once: a row a token, at its own position.

    `record_BT` (`nets.records`) keeps the records of a window apart.
    """

    ids_BT: Tensor
    length_B: Tensor
    record_BT: Tensor | None = None

    @cached_property
    def position_T(self) -> Tensor:  # noqa: N802 — axes
        """The place of each row in its window."""
        return torch.arange(self.ids_BT.shape[1], device=self.ids_BT.device)

    def alive(self, step: int) -> Tensor:
        """Rows p for which row p + step exists, in p's record if these are apart."""
        return alive_rows(self.position_T, self.length_B, self.record_BT, step)

    def inputs(self, draft: ChainBlock, carried_BTH: Tensor, step: int) -> Tensor:
        """The block's input rows made of token p + step and what p carries; dead rows 0."""
        token_BT = self.ids_BT.roll(-step, dims=1)  # what comes round lies in dead rows
        x_BTH = draft.fuse(token_BT, carried_BTH)
        return x_BTH.masked_fill(~self.alive(step)[:, :, None], 0.0)

    def block(self, draft: ChainBlock, x_BTH: Tensor) -> Tensor:
        """The block's output: every row sees the rows before it, in its own record."""
        if self.record_BT is None:
            return draft.block(x_BTH, self.position_T[None].expand_as(self.ids_BT))
        mask_B1TT = seen_in(self.record_BT)[:, None]
        return draft.block(x_BTH, positions_in(self.record_BT), mask_B1TT)


@dataclass(frozen=True)
class Stride:
    """A chain starts every `every` rows from `offset_B`, each window's own."""

    every: int
    offset_B: Tensor

    def starts(self, laid: Laid) -> Tensor:
        """Where chains start, bool [B, T]."""
        behind_BT = laid.position_T - self.offset_B[:, None]
        return (behind_BT >= 0) & (behind_BT % self.every == 0)


def stride_at(windows: Sequence[int], refresh_round: int, every: int) -> Stride:
    """The starts of these windows in a refresh round: offset `(5·i + 3·r) mod N`."""
    offsets = [(5 * window + 3 * refresh_round) % every for window in windows]
    return Stride(every, torch.tensor(offsets))


def unroll_rows(
    draft: ChainBlock, laid: Laid, hidden_BTH: Tensor, depth: int
) -> Iterator[ChainStep]:
    """Steps 1…depth of the chains from all rows, each step in a forward of its own.

    Step j's row for start p reads token p+j and step j-1's output at position p, and sees
    the step-j rows of positions ≤ p: those of other chains, where a decode has the trunk's.
    """
    carried_BTH = draft.trunk_rows(hidden_BTH)
    for step in range(1, depth + 1):
        output_BTH = laid.block(draft, laid.inputs(draft, carried_BTH, step))
        yield ChainStep(step, output_BTH, laid.alive(step))
        carried_BTH = draft.chain_rows(output_BTH).detach()


@torch.no_grad()
def spliced_rows(
    draft: ChainBlock, laid: Laid, hidden_BTH: Tensor, depth: int, stride: Stride
) -> Tensor:
    """What each row carries once chains are laid over the rows behind their starts.

    The trunk's row, except row q = n + j - 1 of the chain from n, j = 2…depth: there the
    block's output at q-1, as it was when steps below j were laid. A chain ends with its
    window, or its record; f32 [B, T, H]. `stride.every` is at least `depth`.
    """
    carried_BTH = draft.trunk_rows(hidden_BTH).float()
    starts_BT = stride.starts(laid)
    for step in range(2, depth + 1):
        output_BTH = laid.block(draft, laid.inputs(draft, carried_BTH, 1))
        own_BTH = draft.chain_rows(output_BTH)
        is_step_BT = _later(starts_BT & laid.alive(step), step - 1)
        carried_BTH = torch.where(is_step_BT[:, :, None], _later(own_BTH, 1), carried_BTH)
    return carried_BTH


def _later(rows: Tensor, by: int) -> Tensor:
    """Rows moved `by` ≥ 1 positions on, zeros before them; [B, T, …]."""
    moved = torch.zeros_like(rows)
    moved[:, by:] = rows[:, :-by]
    return moved
