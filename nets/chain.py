"""The exact chain layout: every start's chain at once, as a decode would run each alone.

Axes: B windows, T positions, H hidden, S keys. healing.md §6 `exact`; models.md §4.5.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from nets.draft import KeyValues


class ChainBlock(Protocol):
    """The two calls of `nets.draft.Draft` a chain is made of."""

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

    The output of a dead row means nothing.
    """

    step: int
    output_BTH: Tensor
    alive_BT: Tensor


def unroll_exact(
    draft: ChainBlock,
    ids_BT: Tensor,
    length_B: Tensor,
    hidden_BTH: Tensor,
    depth: int,
    *,
    through_chain: bool = False,
) -> Iterator[ChainStep]:
    """Steps 1…depth of the chains from all rows of the windows.

    Step j's row for start p reads token p+j and the output of step j-1 (the trunk's row at
    first) at position p+j-1, and sees the step-1 rows of positions ≤ p and its own later
    steps: what a decode has once it has re-fed the accepted rows. `hidden_BTH` is raw, and
    so is what is passed on. Gradient stops at each step's input unless `through_chain`.
    """
    width, cache, carried_BTH = ids_BT.shape[1], KeyValues(), hidden_BTH
    position_T = torch.arange(width, device=ids_BT.device)
    for step in range(1, depth + 1):
        alive_BT = position_T + step < length_B[:, None]
        token_BT = torch.zeros_like(ids_BT)
        token_BT[:, : width - step] = ids_BT[:, step:]
        x_BTH = draft.fuse(token_BT, carried_BTH)
        x_BTH = x_BTH.masked_fill(~alive_BT[:, :, None], 0.0)
        position_BT = (position_T + step - 1)[None].expand_as(ids_BT)
        output_BTH = draft.block(x_BTH, position_BT, _seen(position_T, step), cache)
        yield ChainStep(step, output_BTH, alive_BT)
        carried_BTH = output_BTH if through_chain else output_BTH.detach()


def _seen(position_T: Tensor, step: int) -> Tensor | None:
    """Mask [1, 1, T, step·T], true where a row may look; None: causal, for step 1."""
    if step == 1:
        return None
    causal_TT = position_T[:, None] >= position_T
    own_TT = position_T[:, None] == position_T
    return torch.cat([causal_TT, *[own_TT] * (step - 1)], dim=1)[None, None]
