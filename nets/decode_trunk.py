"""A trunk that reads one text piece by piece, and can forget the end of the last piece.

Legend: T positions of a piece, S of the text so far, H hidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicLayer, LinearAttentionLayer

from nets.layer import Surroundings
from nets.trunk import Trunk


@dataclass(frozen=True)
class _State:
    """What a linear-attention layer remembers of a text, copied."""

    conv: dict[int, Tensor]
    recurrent: dict[int, Tensor]


class CachedTrunk:
    """One text's keys and states in every layer; `length` rows of it were read.

    All keys are kept, also of layers with a sliding window, whose masks hide them: so the
    last rows can be dropped again. The state of a linear-attention layer cannot be taken
    back: it is copied before each piece of several rows, and what stays is read anew.
    """

    def __init__(self, trunk: Trunk) -> None:
        self.trunk, self.length = trunk, 0
        self._linear = {
            i: LinearAttentionLayer()
            for i, layer in enumerate(trunk.geometry.layers)
            if layer.kind == "LinearAttention"
        }
        self._attention = {
            i: DynamicLayer()
            for i in range(len(trunk.geometry.layers))
            if i not in self._linear
        }
        every = {**self._linear, **self._attention}
        self._cache = Cache(layers=[every[i] for i in range(len(every))])
        self._last: list[int] = []
        self._before: dict[int, _State] = {}

    @torch.no_grad()
    def extend(self, ids: Sequence[int]) -> Tensor:
        """`Trunk.hidden` of the text's next rows, [1, T, H], f32."""
        self._last = list(ids)
        if self.length and len(ids) > 1:
            self._before = {i: _copied(layer) for i, layer in self._linear.items()}
        shared = self.trunk.shared
        device = shared.embed_VH.device
        x_1TH = shared.embedded(torch.tensor([self._last], device=device))
        position_1T = torch.arange(self.length, self.length + len(ids), device=device)
        cos_1TD, sin_1TD = shared.rotary(x_1TH, position_1T[None])
        around = Surroundings(
            cos_1TD,
            sin_1TD,
            causal=seen_behind(self.length, len(ids), None, device),
            windowed=seen_behind(self.length, len(ids), shared.arch.sliding_window, device),
        )
        with torch.autocast(device.type, torch.bfloat16, enabled=shared.is_low):
            for i, layer in enumerate(self.trunk.layers):
                kind = self.trunk.geometry.layers[i]
                x_1TH = around.run(self._run, layer, kind, x_1TH)
        self.length += len(ids)
        return x_1TH

    def keep(self, length: int) -> None:
        """Forget the rows behind the first `length`; only rows of the last piece can go."""
        gone = self.length - length
        assert 0 <= gone < len(self._last)
        if not gone:
            return
        # Where a state has to be read anew, so are the keys of the rows that stay.
        dropped = len(self._last) if self._linear else gone
        for layer in self._attention.values():
            layer.crop(-dropped)
        self.length -= dropped
        if self._linear:
            for i, state in self._before.items():
                _put_back(self._linear[i], state)
            self.extend(self._last[: len(self._last) - gone])

    def _run(
        self,
        layer: nn.Module,
        x_BTH: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None,
    ) -> Tensor:
        out_BTH: Tensor = layer(
            x_BTH, attention_mask=mask, position_embeddings=(cos, sin), cache=self._cache
        )
        return out_BTH


def seen_behind(
    start: int, width: int, window: int | None, device: torch.device
) -> Tensor | None:
    """Who a text's rows from `start` on may see, bool [1, 1, T, S]; None where plain.

    Row t sees rows s with t - window < s ≤ t. Plain causal attention needs no mask for a
    whole text, nor for one row.
    """
    is_plain = width == 1 or start == 0
    if is_plain and (window is None or start + width <= window):
        return None
    row_T1 = torch.arange(start, start + width, device=device)[:, None]
    key_S = torch.arange(start + width, device=device)
    seen_TS = key_S <= row_T1
    if window is not None:
        seen_TS = seen_TS & (row_T1 - key_S < window)
    return seen_TS[None, None]


def _copied(layer: LinearAttentionLayer) -> _State:
    return _State(
        {i: tensor.clone() for i, tensor in layer.conv_states.items()},
        {i: tensor.clone() for i, tensor in layer.recurrent_states.items()},
    )


def _put_back(layer: LinearAttentionLayer, state: _State) -> None:
    # In place: the layer's tensors have an address of their own.
    for i, tensor in state.conv.items():
        layer.conv_states[i].copy_(tensor)
    for i, tensor in state.recurrent.items():
        layer.recurrent_states[i].copy_(tensor)
