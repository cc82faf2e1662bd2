"""Empty `transformers` layers of a family: its config, its classes, one layer at a time.

Everything here is built on the meta device, without weights and without memory; who fills
a layer, and when, is the caller's choice. Nothing here opens a connection.
"""

import importlib
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import logging as transformers_logging

from cmfio.header import Arch, LayerType
from nets.families import Family
from nets.geometry import TrunkGeometry, layer_prefix
from nets.header_check import ACTIVATIONS
from nets.layer_geometry import LayerGeometry
from nets.layer_tensors import Part

transformers_logging.set_verbosity_error()
transformers_logging.disable_progress_bar()

Read = Callable[[str], Tensor]
KINDS: dict[LayerType, str] = {
    "FullAttention": "full_attention",
    "SlidingAttention": "sliding_attention",
    "LinearAttention": "linear_attention",
}


def hf_class(module: str, name: str) -> Any:
    """A `transformers` class, e.g. LlamaDecoderLayer of llama; untyped there, so Any."""
    file = "configuration" if name.endswith("Config") else "modeling"
    return getattr(
        importlib.import_module(f"transformers.models.{module}.{file}_{module}"), name
    )


def family_class(family: Family, name: str) -> Any:
    """The family's own class of a kind: "RMSNorm", "RotaryEmbedding", "Config", …"""
    prefix = family.class_prefix
    if name == "Config" and family.linear is not None and prefix != "Qwen3Next":
        name = "TextConfig"  # the plain one is of the vision model around it
    return hf_class(family.module, prefix + name)


def trunk_config(arch: Arch, geometry: TrunkGeometry) -> Any:
    """The header as the family's `transformers` config, with the first layer's widths."""
    family = geometry.family
    config = family_class(family, "Config")(
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
        rope_parameters=_rope_parameters(family, arch),
        # The classes' defaults lie outside a small vocabulary.
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    config._attn_implementation = "sdpa"
    config.sliding_window = arch.sliding_window
    config.linear_key_head_dim = arch.linear_key_head_dim
    config.linear_value_head_dim = arch.linear_value_head_dim
    _set_router(config, arch)
    config = layer_config(config, geometry.layers[0], 0)
    config.layer_types = [KINDS[layer.kind] for layer in geometry.layers]
    return config


def layer_config(config: Any, layer: LayerGeometry, index: int) -> Any:
    """A copy of a `transformers` config with one layer's widths, for the class' `index`."""
    own = deepcopy(config)
    own.num_attention_heads = layer.heads or 1
    own.num_key_value_heads = layer.kv_heads or 1
    own.intermediate_size = layer.ffn
    own.layer_types = [KINDS[layer.kind]] * (index + 1)
    own.linear_num_key_heads = layer.key_heads
    own.linear_num_value_heads = layer.value_heads
    own.linear_conv_kernel_dim = layer.taps
    for option in ("attention_bias", "use_qk_norm"):
        setattr(own, option, option in layer.options)
    _set_experts(own, layer, index)
    return own


def empty_layer(
    family: Family, config: Any, layer: LayerGeometry, index: int = 0
) -> nn.Module:
    """One decoder layer on meta, its tensors those of `layer.parts` by the same names.

    `config` is the trunk's (`Shared.config`). `index` is only what the layer calls itself
    towards a key/value cache.
    """
    module, prefix = family.module, family.class_prefix
    if not layer.is_sparse and family.dense_classes is not None:
        module, prefix = family.dense_classes
    own = layer_config(config, layer, index)
    with torch.device("meta"):
        built: nn.Module = hf_class(module, prefix + "DecoderLayer")(own, index)
        ffn = built.get_submodule("mlp")
        if "shared_experts" in dict(ffn.named_children()):
            # The class makes it a whole multiple of an expert; a folded one need not be.
            ffn.shared_experts = hf_class(module, prefix + "MLP")(own, layer.shared_ffn)
    _keep_exact(built)
    return built


def layer_state(
    layer: LayerGeometry, prefix: str, read: Read, *, device: str, dtype: torch.dtype
) -> dict[str, Tensor]:
    """The weights of the layer under `prefix` by the class' names, for `load_state_dict`.

    One source tensor at a time is held beside the result. What must not be rounded
    (`Part.is_f32`) is f32 whatever `dtype` is.
    """
    return {
        part.name: join_part(part, prefix, read, device=device, dtype=dtype)
        for part in layer.parts
    }


def join_part(
    part: Part, prefix: str, read: Read, *, device: str, dtype: torch.dtype
) -> Tensor:
    """One tensor of the class' layer, of the container's."""
    kept = torch.float32 if part.is_f32 else dtype
    if len(part.sources) == 1:
        return read(prefix + part.sources[0]).to(device, kept).view(part.shape)
    joined = torch.empty(part.shape, device=device, dtype=kept)
    rows = joined.view(len(part.sources), *part.source_shape)
    for row, source in zip(rows, part.sources, strict=True):
        row.copy_(read(prefix + source))
    return joined


def split_part(part: Part, tensor: Tensor) -> dict[str, Tensor]:
    """The container's tensors of one of the class' layer, views of it, by source name."""
    rows = tensor.view(len(part.sources), *part.source_shape)
    return dict(zip(part.sources, rows, strict=True))


def empty_base(arch: Arch, geometry: TrunkGeometry) -> nn.Module:
    """The family's embedding, layers and norm without weights, each layer of its width."""
    config = trunk_config(arch, geometry)
    with torch.device("meta"):
        base: nn.Module = family_class(geometry.family, "Model")(config)
        layers = [
            empty_layer(geometry.family, config, layer, i)
            for i, layer in enumerate(geometry.layers)
        ]
        base.layers = nn.ModuleList(layers)
    return base


def new_rotary(family: Family, config: Any, device: str) -> nn.Module:
    """The family's rotary, its `inv_freq` computed in f32 (no container stores it)."""
    name = "TextRotaryEmbedding" if family.linear is not None else "RotaryEmbedding"
    if family.class_prefix == "Qwen3Next":
        name = "RotaryEmbedding"
    rotary: nn.Module = family_class(family, name)(config=config)
    return rotary.to(device)


def trunk_layer_state(
    geometry: TrunkGeometry, index: int, read: Read, *, device: str, dtype: torch.dtype
) -> dict[str, Tensor]:
    """`layer_state` of trunk layer `index`."""
    return layer_state(
        geometry.layers[index], layer_prefix(index), read, device=device, dtype=dtype
    )


def _keep_exact(layer: nn.Module) -> None:
    """The parts whose class asks for f32 get it under bf16 autocast too.

    A delta net's state runs over the whole window and a sigmoid router chooses by sums near
    each other; autocast would round their products to bf16 past the class' own casts.
    """
    for name, module in layer.named_modules():
        is_router = name == "mlp.gate" and hasattr(module, "e_score_correction_bias")
        if name == "linear_attn" or is_router:
            # The class, not an instance's forward: a copied layer must use its own weights.
            module.__class__ = _exact_class(type(module))  # type: ignore[arg-type]  # hashable


@cache
def _exact_class(cls: type[nn.Module]) -> type[nn.Module]:
    return type(cls.__name__, (_WithoutAutocast, cls), {})


class _WithoutAutocast(nn.Module):
    """Computes in its weights' type, with f32 where the class says, like `transformers`."""

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        dtype = next(p.dtype for p in self.parameters() if p.dim() == 2)
        with torch.autocast(hidden_states.device.type, enabled=False):
            return super().forward(hidden_states.to(dtype), *args, **kwargs)


def _set_router(config: Any, arch: Arch) -> None:
    if arch.moe is None:
        return
    config.norm_topk_prob = arch.moe.norm_topk_prob
    config.num_experts_per_tok = arch.moe.top_k
    factor = arch.moe.routed_scaling_factor
    config.routed_scaling_factor = 1.0 if factor is None else float(factor)


def _set_experts(own: Any, layer: LayerGeometry, index: int) -> None:
    """Sparse or dense as the layer is, under the names of all the classes."""
    own.mlp_only_layers = [] if layer.is_sparse else [index]
    own.decoder_sparse_step = 1
    own.first_k_dense_replace = 0 if layer.is_sparse else index + 1
    own.n_group = own.topk_group = own.n_shared_experts = 1
    own.num_experts = own.n_routed_experts = layer.experts
    own.moe_intermediate_size = layer.expert_ffn
    own.shared_expert_intermediate_size = layer.shared_ffn
    if layer.is_sparse:
        own.num_experts_per_tok = min(own.num_experts_per_tok, layer.experts)
        # The grouped product wants rows of whole 16 bytes; a folded expert may have others.
        is_grouped = not (layer.expert_ffn % 8 or own.hidden_size % 8)
        own._experts_implementation = "grouped_mm" if is_grouped else "eager"


def _rope_parameters(family: Family, arch: Arch) -> dict[str, str | float | int]:
    rope: dict[str, str | float | int] = {
        "rope_type": "default",
        "rope_theta": float(arch.rope_theta),
    }
    if family.rules.has_partial_rotary:
        rope["partial_rotary_factor"] = float(arch.partial_rotary_factor)
    if arch.yarn is None:
        return rope
    return rope | {
        "rope_type": "yarn",
        "factor": float(arch.yarn.factor),
        "original_max_position_embeddings": arch.yarn.original_max_position_embeddings,
        "beta_fast": float(arch.yarn.beta_fast),
        "beta_slow": float(arch.yarn.beta_slow),
        "attention_factor": float(arch.yarn.attention_factor),
    }
