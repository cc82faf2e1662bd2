"""The exact chain layout: every start's chain at once, as a decode would run each alone.

Axes: B windows, T positions, H hidden, S keys. healing.md §6 `exact`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from nets.draft import KeyValues
from nets.own_steps import merges
from nets.records import pieces_of, positions_in, seen_in


class ChainBlock(Protocol):
    """The calls of `nets.draft.Draft` a chain is made of."""

    def trunk_rows(self, hidden_BTH: Tensor) -> Tensor:
        """What step 1 reads of the trunk's raw rows."""

    def chain_rows(self, o_BTH: Tensor) -> Tensor:
        """What the next step reads of the block's output."""

    def fuse(self, token_BT: Tensor, hidden_BTH: Tensor) -> Tensor:
        """The block's input rows."""

    def block(
        self,
        x_BTH: Tensor,
        position_BT: Tensor,
        mask: Tensor | None = None,
        cache: KeyValues | None = None,
    ) -> Tensor:
        """The block's output rows; `cache` is given this step's keys and values."""


@dataclass(frozen=True)
class ChainStep:
    """Step `step` (from 1) of the chains from every row; alive where `p + step < len`.

    With records apart, alive where `p + step` is in p's. The output of a dead row means
    nothing.
    """

    step: int
    output_BTH: Tensor
    alive_BT: Tensor


def unroll_exact(  # noqa: PLR0913 — the windows, then how to go through them
    draft: ChainBlock,
    ids_BT: Tensor,
    length_B: Tensor,
    hidden_BTH: Tensor,
    depth: int,
    *,
    record_BT: Tensor | None = None,
    through_chain: bool = False,
) -> Iterator[ChainStep]:
    """Steps 1…depth of the chains from all rows of the windows.

    Step j's row for start p reads token p+j and the output of step j-1 (the trunk's row at
    first) at position p+j-1, and sees the step-1 rows of positions ≤ p and its own later
    steps: what a decode has once it has re-fed the accepted rows. `hidden_BTH` is raw; the
    draft's wiring says how it and the outputs are read. With `record_BT`
    (`nets.records`) each record has chains and positions as if it were alone. Gradient
    stops at each step's input unless `through_chain`.
    """
    cache = KeyValues()
    carried_BTH = draft.trunk_rows(hidden_BTH)
    position_T = torch.arange(ids_BT.shape[1], device=ids_BT.device)
    start_BT = position_T[None] if record_BT is None else positions_in(record_BT)
    for step in range(1, depth + 1):
        alive_BT = alive_rows(position_T, length_B, record_BT, step)
        token_BT = ids_BT.roll(-step, dims=1)  # what comes round lies in dead rows
        x_BTH = draft.fuse(token_BT, carried_BTH)
        x_BTH = x_BTH.masked_fill(~alive_BT[:, :, None], 0.0)
        position_BT = (start_BT + step - 1).expand_as(ids_BT)
        mask = _seen(position_T, record_BT, step)
        output_BTH = draft.block(x_BTH, position_BT, mask, cache)
        yield ChainStep(step, output_BTH, alive_BT)
        own_BTH = draft.chain_rows(output_BTH)
        carried_BTH = own_BTH if through_chain else own_BTH.detach()


def unroll_apart(  # noqa: PLR0913 — as `unroll_exact`
    draft: ChainBlock,
    ids_BT: Tensor,
    length_B: Tensor,
    hidden_BTH: Tensor,
    depth: int,
    record_BT: Tensor,
    *,
    through_chain: bool = False,
) -> Iterator[ChainStep]:
    """`unroll_exact` with records apart, one record a call.

    For a block whose experts get as many rows as the text decides: a product's rounding may
    follow from their number, so text of other records would show in the last bits.
    """
    chains = []
    for window, rows in pieces_of(record_BT):
        at, size = (slice(window, window + 1), rows), rows.stop - rows.start
        length_1 = (length_B[window : window + 1] - rows.start).clamp(max=size)
        given = (draft, ids_BT[at], length_1, hidden_BTH[at], depth)
        chains.append(unroll_exact(*given, through_chain=through_chain))
    for steps in zip(*chains, strict=True):
        output_BTH = torch.cat([one.output_BTH for one in steps], dim=1)
        alive_BT = torch.cat([one.alive_BT for one in steps], dim=1)
        yield ChainStep(
            steps[0].step, output_BTH.view_as(hidden_BTH), alive_BT.view_as(ids_BT)
        )


def alive_rows(
    position_T: Tensor, length_B: Tensor, record_BT: Tensor | None, step: int
) -> Tensor:
    """Rows p for which row p + step exists, in p's record if these are apart; [B, T]."""
    alive_BT = position_T + step < length_B[:, None]
    if record_BT is not None:
        alive_BT[:, :-step] &= record_BT[:, step:] == record_BT[:, :-step]
    return alive_BT


def _seen(position_T: Tensor, record_BT: Tensor | None, step: int) -> Tensor | None:
    """Mask [B or 1, 1, T, step·T], true where a row may look; None: as the block has it."""
    width, device = len(position_T), position_T.device
    if record_BT is None and (step == 1 or merges(width, device)):
        return None
    causal_TT = position_T[:, None] >= position_T
    seen_BTT = causal_TT[None] if record_BT is None else seen_in(record_BT)
    own_BTT = (position_T[:, None] == position_T).expand_as(seen_BTT)
    return torch.cat([seen_BTT, *[own_BTT] * (step - 1)], dim=2)[:, None]
