"""Text the trunk writes itself: prompts continued token by token, a batch at a time.

Legend: B texts, T positions, H hidden, V vocabulary, N tokens of a continuation. All rows
of a batch are at one position: while a longer prompt lasts its own tokens are fed, where a
shorter one already writes. So there is no padding, and no layer could mistake it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
)

from nets.head import logit_slices, topk_rows
from nets.layer import Surroundings, seen_in_window
from nets.layer_geometry import LayerGeometry
from nets.trunk import Trunk


@dataclass(frozen=True)
class Writing:
    """How texts go on: at most `length` tokens, less where one of `ends` is written.

    `temperature` 0 takes the most probable token. Above it the token is the one where the
    sum of probabilities, by id, passes the text's own draw for that place.
    """

    length: int
    temperature: float
    ends: frozenset[int]
    budget_bytes: int


@dataclass
class _Text:
    """One text: its ids so far, of which the first `given` are the prompt."""

    ids: list[int]
    given: int
    is_open: bool = True

    def fed(self, place: int) -> int:
        """The token at a place; 0 behind the end, where nobody reads what follows."""
        return self.ids[place] if place < len(self.ids) else 0

    def take(self, token: int, place: int, writing: Writing) -> bool:
        """Whether the token was written at this place: the text is open and ends there."""
        if not self.is_open or place != len(self.ids):
            return False
        self.ids.append(token)
        is_full = len(self.ids) - self.given == writing.length
        self.is_open = not is_full and token not in writing.ends
        return True


@torch.no_grad()
def write_texts(
    trunk: Trunk,
    prompts: Sequence[Sequence[int]],
    writing: Writing,
    draws_BN: Tensor | None = None,
    on_tokens: Callable[[int], None] = lambda _: None,
) -> list[list[int]]:
    """Each prompt and the trunk's continuation of it, an end token included.

    Prompts hold at least one token. `draws_BN` f64 in [0, 1) is needed above temperature 0.
    `on_tokens` is told after each position how many texts grew. Greedy tokens are exact
    also with a bf16 head, as the trunk pass names them; sampled ones come from its rounded
    logits.
    """
    texts = [_Text(list(prompt), len(prompt)) for prompt in prompts]
    cache, device = _new_cache(trunk), trunk.shared.embed_VH.device
    place = min(text.given for text in texts)
    fed_BT = torch.tensor([text.ids[:place] for text in texts], device=device)
    while True:
        last_BH = _extend(trunk, fed_BT, place - fed_BT.shape[1], cache)[:, -1]
        draw_B = None if draws_BN is None else _draws_at(draws_BN, texts, place)
        chosen = _choose(trunk, last_BH, writing, draw_B)
        grown = [
            text.take(token, place, writing)
            for text, token in zip(texts, chosen, strict=True)
        ]
        on_tokens(sum(grown))
        if not any(text.is_open for text in texts):
            return [text.ids for text in texts]
        fed_BT = torch.tensor([[text.fed(place)] for text in texts], device=device)
        place += 1


def _extend(trunk: Trunk, ids_BT: Tensor, start: int, cache: Cache) -> Tensor:
    """`Trunk.hidden` of the rows from `start` on, given the cache of those before.

    More than one row only at start 0: the masks of layers are those of whole windows.
    """
    shared = trunk.shared
    x_BTH = shared.embedded(ids_BT)
    width, device = ids_BT.shape[1], ids_BT.device
    position_1T = torch.arange(start, start + width, device=device)[None]
    windowed = seen_in_window(width, shared.arch.sliding_window, device)
    cos_1TD, sin_1TD = shared.rotary(x_BTH, position_1T)
    around = Surroundings(cos_1TD, sin_1TD, windowed=windowed)

    def run(
        layer: nn.Module, x_BTH: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None
    ) -> Tensor:
        out_BTH: Tensor = layer(
            x_BTH, attention_mask=mask, position_embeddings=(cos, sin), cache=cache
        )
        return out_BTH

    with torch.autocast(device.type, torch.bfloat16, enabled=shared.is_low):
        for layer, kind in zip(trunk.layers, trunk.geometry.layers, strict=True):
            x_BTH = around.run(run, layer, kind, x_BTH)
    return x_BTH


def _new_cache(trunk: Trunk) -> Cache:
    """`transformers`' own cache, each layer of it of the kind the trunk's is."""
    window = trunk.shared.arch.sliding_window
    return Cache(layers=[_cache_layer(kind, window) for kind in trunk.geometry.layers])


def _cache_layer(
    layer: LayerGeometry, window: int | None
) -> CacheLayerMixin | LinearAttentionCacheLayerMixin:
    if layer.kind == "LinearAttention":
        return LinearAttentionLayer()
    if layer.kind == "SlidingAttention" and window is not None:
        return DynamicSlidingWindowLayer(sliding_window=window)
    return DynamicLayer()


def _draws_at(draws_BN: Tensor, texts: Sequence[_Text], place: int) -> Tensor:
    """Each text's draw for its token at a place; of a text that takes none there, any."""
    last = draws_BN.shape[1] - 1
    at = [min(max(place - text.given, 0), last) for text in texts]
    return draws_BN.gather(1, torch.tensor(at)[:, None]).squeeze(1)


def _choose(
    trunk: Trunk, hidden_BH: Tensor, writing: Writing, draw_B: Tensor | None
) -> list[int]:
    """The next token of each text."""
    head_VH, budget = trunk.shared.head_VH, writing.budget_bytes
    normed_BH = trunk.final_norm(hidden_BH)
    if writing.temperature == 0:
        best: list[int] = topk_rows(normed_BH, head_VH, 1, budget).id_RK[:, 0].tolist()
        return best
    assert draw_B is not None, "sampling needs draws"
    chosen: list[int] = []
    for part in logit_slices(normed_BH, head_VH, budget):
        p_rV = torch.softmax(part.logits_rV / writing.temperature, -1)
        passed_rV = p_rV.cumsum(-1, dtype=torch.float64)
        # Of what the sum really is, so that no draw lies behind the last token.
        draw_r1 = draw_B[part.at, None].to(passed_rV.device) * passed_rV[:, -1:]
        chosen += torch.searchsorted(passed_rV, draw_r1, right=True).squeeze(1).tolist()
    return chosen
