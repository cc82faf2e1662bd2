"""The frozen trunk: `transformers` modules built empty, then given the container's tensors.

Legend: B windows, T positions, H hidden, V vocabulary, R rows. Tensors arrive through
`read(name)`, so any container serves. A module is never moved by `.to(dtype)`: that would
round the rotary's `inv_freq` to bf16 too and with it every position (models.md §2.6).
Nothing here opens a connection.
"""

import importlib
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import logging as transformers_logging

from cmfio.header import Arch
from nets.families import ACTIVATIONS, Family, Shapes
from nets.geometry import (
    EMBED,
    FINAL_NORM,
    HEAD,
    LayerGeometry,
    TrunkGeometry,
    layer_prefix,
    trunk_geometry,
)
from nets.layer import compiled_layer, run_layer

transformers_logging.set_verbosity_error()
transformers_logging.disable_progress_bar()

Read = Callable[[str], Tensor]


@dataclass(frozen=True)
class Shared:
    """What draft and trunk share: embedding, head, final norm and rotary, all frozen.

    `head_VH` is `embed_VH` itself where the head is tied. `config` is a `transformers`
    config, of which the stubs know nothing, hence Any.
    """

    arch: Arch
    family: Family
    config: Any
    embed_VH: Tensor
    head_VH: Tensor
    final_norm: nn.Module
    rotary: nn.Module

    @property
    def layer_cls(self) -> Callable[[Any, int], nn.Module]:
        """The family's decoder layer, called with a config and a layer number."""
        layer_cls: Callable[[Any, int], nn.Module] = _hf_class(self.family, "DecoderLayer")
        return layer_cls

    @property
    def norm_cls(self) -> Callable[[int, float], nn.Module]:
        """The family's norm, called with a width and an epsilon."""
        norm_cls: Callable[[int, float], nn.Module] = _hf_class(self.family, "RMSNorm")
        return norm_cls


@dataclass(frozen=True)
class Trunk:
    """A whole trunk, in eval mode and frozen."""

    shared: Shared
    base: nn.Module  # embedding and layers; its final norm is the identity
    is_compiled: bool = False

    @torch.no_grad()
    def hidden(self, ids_BT: Tensor) -> Tensor:
        """The last layer's rows *before* the final norm ("raw"), [B, T, H], f32.

        Rows go from layer to layer in f32 whatever the layers compute in: rounding them to
        bf16 twice a layer would be half of a bf16 trunk's error. Windows start at position
        0 and see only what is on their left, so padding on the right needs no mask: its
        rows are there, and mean nothing.
        """
        ids_BT = ids_BT.to(self.shared.embed_VH.device)
        run = compiled_layer() if self.is_compiled else run_layer
        is_low = self.shared.embed_VH.dtype == torch.bfloat16
        x_BTH = nn.functional.embedding(ids_BT, self.shared.embed_VH).float()
        position_1T = torch.arange(ids_BT.shape[1], device=ids_BT.device)[None]
        cos_1TD, sin_1TD = self.shared.rotary(x_BTH, position_1T)
        with torch.autocast(x_BTH.device.type, torch.bfloat16, enabled=is_low):
            for layer in self.layers:
                x_BTH = run(layer, x_BTH, cos_1TD, sin_1TD)
        return x_BTH

    @torch.no_grad()
    def final_norm(self, hidden: Tensor) -> Tensor:
        """The rows the head reads, of raw ones of any leading shape."""
        normed: Tensor = self.shared.final_norm(hidden)
        return normed

    @torch.no_grad()
    def logits(self, hidden_RH: Tensor) -> Tensor:
        """Logits [R, V] of raw rows in the trunk's dtype; the caller keeps R small."""
        normed_RH = self.final_norm(hidden_RH).to(self.shared.head_VH.dtype)
        return nn.functional.linear(normed_RH, self.shared.head_VH)

    @property
    def layers(self) -> nn.ModuleList:
        """The decoder layers, first to last."""
        layers = self.base.layers
        assert isinstance(layers, nn.ModuleList)
        return layers


def build_trunk(
    arch: Arch,
    shapes: Shapes,
    read: Read,
    *,
    device: str,
    dtype: torch.dtype,
    is_compiled: bool = False,
) -> Trunk:
    """The model's trunk on `device`, every tensor of it in `dtype` and the rotary in f32.

    Widths come from `shapes`, layer by layer. ModelError before anything is read if the
    family isn't run here, or a tensor is missing, extra or of the wrong shape.
    """
    geometry = trunk_geometry(arch, shapes)
    shared = _build_shared(arch, geometry, read, device=device, dtype=dtype)
    base = empty_base(arch, geometry)
    # The base model ends with its norm; as the identity, what it returns is the raw row.
    base.norm = nn.Identity()
    state = {"embed_tokens.weight": shared.embed_VH}
    for i in range(arch.num_layers):
        for suffix in geometry.family.layer_axes:
            tensor = read(layer_prefix(i) + suffix)
            state[f"layers.{i}.{suffix}"] = tensor.to(device=device, dtype=dtype)
    base.load_state_dict(state, assign=True)
    base.rotary_emb = shared.rotary
    return Trunk(shared, _frozen(base), is_compiled)


def build_shared(
    arch: Arch, shapes: Shapes, read: Read, *, device: str, dtype: torch.dtype
) -> Shared:
    """What the draft needs of the trunk; reads embedding, head and final norm only.

    The whole directory is checked all the same, so a model `build_trunk` refuses is refused
    here.
    """
    geometry = trunk_geometry(arch, shapes)
    return _build_shared(arch, geometry, read, device=device, dtype=dtype)


def layer_config(config: Any, geometry: LayerGeometry) -> Any:
    """A copy of a `transformers` config with one layer's widths."""
    own = deepcopy(config)
    own.num_attention_heads = geometry.heads
    own.num_key_value_heads = geometry.kv_heads
    own.intermediate_size = geometry.ffn
    return own


def empty_base(arch: Arch, geometry: TrunkGeometry) -> nn.Module:
    """The family's embedding, layers and norm without weights, each layer of its width."""
    config = _hf_config(arch, geometry)
    with torch.device("meta"):
        base: nn.Module = _hf_class(geometry.family, "Model")(config)
        layer_cls = _hf_class(geometry.family, "DecoderLayer")
        own = [layer_cls(layer_config(config, g), i) for i, g in enumerate(geometry.layers)]
        base.layers = nn.ModuleList(own)
    return base


def new_rotary(family: Family, config: Any, device: str) -> nn.Module:
    """The family's rotary, its `inv_freq` computed in f32 (no container stores it)."""
    rotary: nn.Module = _hf_class(family, "RotaryEmbedding")(config=config)
    return rotary.to(device)


def _build_shared(
    arch: Arch, geometry: TrunkGeometry, read: Read, *, device: str, dtype: torch.dtype
) -> Shared:
    family = geometry.family
    config = _hf_config(arch, geometry)
    embed_VH = read(EMBED).to(device=device, dtype=dtype)
    head_VH = embed_VH if geometry.is_tied else read(HEAD).to(device=device, dtype=dtype)
    with torch.device("meta"):
        norm: nn.Module = _hf_class(family, "RMSNorm")(arch.hidden_size, arch.rms_norm_eps)
    gain = read(FINAL_NORM).to(device=device, dtype=dtype)
    norm.load_state_dict({"weight": gain}, assign=True)
    rotary = new_rotary(family, config, device)
    return Shared(arch, family, config, embed_VH, head_VH, _frozen(norm), _frozen(rotary))


def _hf_config(arch: Arch, geometry: TrunkGeometry) -> Any:
    """The header as the family's `transformers` config, with the first layer's widths."""
    config = _hf_class(geometry.family, "Config")(
        hidden_size=arch.hidden_size,
        vocab_size=arch.vocab_size,
        head_dim=arch.head_dim,
        num_hidden_layers=arch.num_layers,
        # Llama's check that hidden_size is a multiple of the heads fails on compressed
        # layers and means nothing with a head_dim of its own: pass one head, then set the
        # real number.
        num_attention_heads=1,
        num_key_value_heads=1,
        rms_norm_eps=float(arch.rms_norm_eps),
        max_position_embeddings=arch.max_position_embeddings,
        hidden_act=ACTIVATIONS[arch.hidden_act],
        tie_word_embeddings=geometry.is_tied,
        rope_parameters=_rope_parameters(arch),
        # The classes' defaults lie outside a small vocabulary.
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    config._attn_implementation = "sdpa"
    return layer_config(config, geometry.layers[0])


def _rope_parameters(arch: Arch) -> dict[str, str | float | int]:
    theta = float(arch.rope_theta)
    if arch.yarn is None:
        return {"rope_type": "default", "rope_theta": theta}
    return {
        "rope_type": "yarn",
        "rope_theta": theta,
        "factor": float(arch.yarn.factor),
        "original_max_position_embeddings": arch.yarn.original_max_position_embeddings,
        "beta_fast": float(arch.yarn.beta_fast),
        "beta_slow": float(arch.yarn.beta_slow),
        "attention_factor": float(arch.yarn.attention_factor),
    }


def _hf_class(family: Family, name: str) -> Any:
    """The family's `transformers` class, e.g. LlamaDecoderLayer; untyped there, so Any."""
    file = "configuration" if name == "Config" else "modeling"
    model_type = family.module.rsplit(".", 1)[1]
    module = importlib.import_module(f"{family.module}.{file}_{model_type}")
    return getattr(module, family.class_prefix + name)


def _frozen(module: nn.Module) -> nn.Module:
    tensors = [*module.named_parameters(), *module.named_buffers()]
    left = [name for name, tensor in tensors if tensor.is_meta]
    assert not left, f"never loaded: {left}"
    return module.eval().requires_grad_(requires_grad=False)
