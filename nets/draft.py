"""The draft: two norms, one projection, one decoder layer of the trunk's family, one norm.

Legend: B windows, T positions, S keys, N heads, D head_dim, H hidden. Weights are f32
masters, to be used under bf16 autocast where that is fast. The wiring (healing.md §3) says
whether step 1 reads the trunk's row before or after its final norm, and later steps
`block`'s output before or after `norm`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from cmfio.header import Arch
from conf.base import RAW, Wiring
from nets.errors import ModelError
from nets.families import Shapes
from nets.geometry import (
    DRAFT_LAYER,
    DRAFT_PREFIX,
    FINAL_NORM,
    DraftGeometry,
    draft_geometry,
    layer_prefix,
    trunk_geometry,
)
from nets.hf_layer import empty_layer, layer_state, split_part
from nets.own_steps import attend_in_chains
from nets.stream import Call, StreamedTrunk
from nets.trunk import Read, Shared, Trunk

Trainable = Literal["block", "all"]


@dataclass
class KeyValues:
    """The keys and values of one batch of chains, joined along time as the steps go."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)

    def update(
        self, key_BNTD: Tensor, value_BNTD: Tensor, layer_idx: int, kwargs: object = None
    ) -> tuple[Tensor, Tensor]:
        """All keys and values so far, [B, N, S, D]; called like `transformers`' cache."""
        self.keys.append(key_BNTD)
        self.values.append(value_BNTD)
        return torch.cat(self.keys, dim=2), torch.cat(self.values, dim=2)


class Draft(nn.Module):
    """The MTP block of healing.md §3; `tensors` has its weights as a container has them.

    Embedding, head and rotary are the trunk's, held by reference, no parameters of it.
    """

    def __init__(
        self, shared: Shared, geometry: DraftGeometry, wiring: Wiring = RAW
    ) -> None:
        super().__init__()
        hidden, eps = shared.arch.hidden_size, shared.arch.rms_norm_eps
        self.enorm = shared.norm_cls(hidden, eps)
        self.hnorm = shared.norm_cls(hidden, eps)
        self.eh_proj = nn.Linear(2 * hidden, hidden, bias=False)
        self.norm = shared.norm_cls(hidden, eps) if geometry.has_norm else nn.Identity()
        layer = empty_layer(shared.family, shared.config, geometry.layer)
        attend_in_chains(layer)
        self.layers = nn.ModuleList([layer])
        self.shared, self.geometry, self.wiring = shared, geometry, wiring

    def trunk_rows(self, hidden_BTH: Tensor) -> Tensor:
        """What step 1 reads of the trunk's raw rows: these, or their final norm in f32."""
        if self.wiring.hidden == "raw":
            return hidden_BTH
        normed_BTH: Tensor = self.shared.final_norm(hidden_BTH.float())
        return normed_BTH

    def chain_rows(self, o_BTH: Tensor) -> Tensor:
        """What the next step reads of `block`'s output: that, or what the head reads."""
        return o_BTH if self.wiring.chain == "raw" else self.read_out(o_BTH)

    def fuse(self, token_BT: Tensor, hidden_BTH: Tensor) -> Tensor:
        """The block's input rows: eh_proj · [enorm(embed(token)) ; hnorm(hidden)].

        `hidden_BTH` is as `trunk_rows` or `chain_rows` gave it, of any float dtype; both
        halves are normed in f32.
        """
        embedded_BTH = nn.functional.embedding(token_BT, self.shared.embed_VH)
        halves = [self.enorm(embedded_BTH.float()), self.hnorm(hidden_BTH.float())]
        x_BTH: Tensor = self.eh_proj(torch.cat(halves, dim=-1))
        return x_BTH

    def block(
        self,
        x_BTH: Tensor,
        position_BT: Tensor,
        mask: Tensor | None = None,
        cache: KeyValues | None = None,
    ) -> Tensor:
        """The layer's output rows, raw: what `chain_rows` and `read_out` start from.

        Positions are the rotary's, [B, T] or [1, T]. `mask` is bool and broadcasts to
        [B, N, T, S], true where row t may see key s; without one attention is causal over T
        keys, and of further T each row sees its own (`nets.own_steps`). `cache` holds the
        keys of earlier steps and is given this step's.
        """
        rotation = self.shared.rotary(x_BTH, position_BT)
        out_BTH: Tensor = self.layers[0](
            x_BTH, attention_mask=mask, position_embeddings=rotation, cache=cache
        )
        return out_BTH

    def read_out(self, o_BTH: Tensor) -> Tensor:
        """The rows the head reads: `norm` of the block's output, any leading shape."""
        normed: Tensor = self.norm(o_BTH)
        return normed

    def tensors(self) -> dict[str, Tensor]:
        """A copy of every weight by its CMF name, f32 on the CPU."""
        state = self.state_dict()
        found: dict[str, Tensor] = {}
        for part in self.geometry.layer.parts:
            pieces = split_part(part, state.pop(f"layers.0.{part.name}"))
            found |= {f"layers.0.{source}": piece for source, piece in pieces.items()}
        return {
            DRAFT_PREFIX + name: tensor.detach().to("cpu", torch.float32, copy=True)
            for name, tensor in {**state, **found}.items()
        }

    def trainable(self, which: Trainable) -> list[nn.Parameter]:
        """The parameters to train, in `state_dict` order; gradients are off for the others.

        `block` is the layer and `norm`; `all` is also `enorm`, `hnorm` and `eh_proj`.
        """
        for name, parameter in self.named_parameters():
            is_chosen = which == "all" or name.startswith(("layers.", "norm."))
            parameter.requires_grad = is_chosen
        return [parameter for parameter in self.parameters() if parameter.requires_grad]


def build_draft(
    arch: Arch, shapes: Shapes, read: Read, shared: Shared, wiring: Wiring = RAW
) -> Draft:
    """The model's own draft with f32 copies of its tensors, on the device of `shared`.

    Widths come from the draft's tensors. ModelError if there is none or a part is missing,
    with the offer of `init` and `start_from_last_layer`, or if it holds what a draft here
    can't use.
    """
    geometry = draft_geometry(shared.family, arch, shapes)
    with torch.device("meta"):
        draft = Draft(shared, geometry, wiring)
    device = str(shared.embed_VH.device)
    state = {
        name: read(DRAFT_PREFIX + name).to(device, torch.float32)
        for name in draft.state_dict()
        if not name.startswith("layers.")
    }
    layer = layer_state(
        geometry.layer, DRAFT_LAYER, read, device=device, dtype=torch.float32
    )
    state |= {f"layers.0.{name}": tensor for name, tensor in layer.items()}
    copies = {name: tensor.clone() for name, tensor in state.items()}
    draft.load_state_dict(copies, assign=True)
    return draft.eval()


def draft_from(
    tensors: Mapping[str, Tensor], shared: Shared, wiring: Wiring = RAW
) -> Draft:
    """A draft with these weights (what `Draft.tensors` gave), without a model file."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    return build_draft(shared.arch, shapes, tensors.__getitem__, shared, wiring)


def fresh_draft_tensors(
    arch: Arch, shapes: Shapes, read: Read, hidden_rms: float
) -> dict[str, Tensor]:
    """Tensors of a draft that starts from the trunk's last attention layer, f32.

    `arch`, `shapes` and `read` are the trunk's. Names are a container's. The layer is a
    copy of that one, and `norm` of the trunk's where the family's drafts have one; `enorm`
    and `hnorm` change nothing; `eh_proj` is [c·I | c·I] with c = `hidden_rms`, about the
    rms of the copied layer's input (`last_input_rms`). Untrained it holds next to nothing,
    and all of it must be trained. ModelError too for a trunk without an attention layer.
    """
    if not 0 < hidden_rms < math.inf:
        raise ModelError(
            f"the rows that enter the trunk's last layer have an rms of {hidden_rms}; a "
            "fresh draft needs it finite and above 0, run the trunk in f32 "
            "(trunk.dtype: f32)"
        )
    trunk = trunk_geometry(arch, shapes)
    identity = hidden_rms * torch.eye(arch.hidden_size)
    neutral = torch.ones(arch.hidden_size) * (trunk.family.norm_style == "qwen")
    tensors = {
        "enorm.weight": neutral,
        "hnorm.weight": neutral.clone(),
        "eh_proj.weight": torch.cat([identity, identity], dim=1),
    }
    if trunk.family.needs_draft_norm:
        tensors["norm.weight"] = read(FINAL_NORM).to(torch.float32, copy=True)
    copied = trunk.last_attention
    for part in trunk.layers[copied].parts:
        for source in part.sources:
            tensor = read(layer_prefix(copied) + source)
            tensors[f"layers.0.{source}"] = tensor.to(torch.float32, copy=True)
    return {DRAFT_PREFIX + name: tensor for name, tensor in tensors.items()}


@torch.no_grad()
def last_input_rms(trunk: Trunk | StreamedTrunk, ids_BT: Tensor) -> float:
    """Rms of a typical channel (the median one) of the rows that a fresh draft's layer had.

    They enter the trunk's last attention layer, of which the draft's is a copy.

    Over all channels a few outliers would set it: on SmolLM2 40, where the median channel
    has 16, and a draft started from it learns more slowly.
    """
    before = trunk.geometry.last_attention
    if isinstance(trunk, StreamedTrunk):
        (rows_BTH,) = trunk.hidden([Call(ids_BT)], layers=before)
    else:
        rows_BTH = trunk.hidden(ids_BT, layers=before)
    channel_H = rows_BTH.flatten(0, 1).square().mean(0).sqrt()
    return float(channel_H.quantile(0.5))
