"""`transformers`' own models of the tiny models' tensors, built the usual way."""

from typing import Any

import torch
import transformers
from torch import Tensor

from tests.builders import TinyModel
from tests.oracles.trunk import Plain, Rows, YarnOracle

CLASSES = {
    "llama": ("Llama", "Config"),
    "mistral": ("Mistral", "Config"),
    "qwen2": ("Qwen2", "Config"),
    "mimo": ("Qwen2", "Config"),
    "ernie4_5": ("Ernie4_5", "Config"),
    "qwen3": ("Qwen3", "Config"),
    "qwen3_moe": ("Qwen3Moe", "Config"),
    "qwen3_5_text": ("Qwen3_5", "TextConfig"),
    "qwen3_5_moe_text": ("Qwen3_5Moe", "TextConfig"),
    "qwen3_next": ("Qwen3Next", "Config"),
    "glm4_moe": ("Glm4Moe", "Config"),
}
KINDS = {
    "FullAttention": "full_attention",
    "SlidingAttention": "sliding_attention",
    "LinearAttention": "linear_attention",
}


def peer(model: TinyModel) -> Any:  # transformers has no types
    """The model's logits come from `peer(model)(input_ids=…)`; its draft is left out."""
    prefix, config_name = CLASSES[model.arch.arch_name]
    config = getattr(transformers, prefix + config_name)(**settings(model))
    reference = getattr(transformers, f"{prefix}ForCausalLM")(config)
    state = theirs({n: t for n, t in model.tensors.items() if "model.mtp." not in n})
    missing, unexpected = reference.load_state_dict(state, strict=False)
    assert not unexpected
    assert missing == (["lm_head.weight"] if model.arch.tie_word_embeddings else [])
    return reference.eval()


def settings(model: TinyModel) -> dict[str, Any]:
    """The config a checkpoint of this model would have."""
    arch, shapes = model.arch, model.shapes
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": arch.rope_theta}
    if arch.partial_rotary_factor != 1:
        rope["partial_rotary_factor"] = arch.partial_rotary_factor
    common = {
        "hidden_size": arch.hidden_size,
        "vocab_size": arch.vocab_size,
        "head_dim": arch.head_dim,
        "intermediate_size": arch.intermediate_size,
        "num_hidden_layers": arch.num_layers,
        "num_attention_heads": arch.num_attention_heads,
        "num_key_value_heads": arch.num_kv_heads,
        "rms_norm_eps": 1e-6,
        "rope_parameters": rope,
        "tie_word_embeddings": arch.tie_word_embeddings,
        "layer_types": [KINDS[kind] for kind in arch.layer_types],
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if arch.arch_name in ("llama", "mistral"):
        del common["layer_types"]
    return {**common, **windows(model), **linear(model), **experts(model, shapes)}


def windows(model: TinyModel) -> dict[str, Any]:
    found = {"sliding_window": model.arch.sliding_window}
    is_switched = model.arch.sliding_window and model.arch.arch_name != "mistral"
    return {**found, "use_sliding_window": True} if is_switched else found


def linear(model: TinyModel) -> dict[str, Any]:
    if model.arch.linear_key_head_dim is None:
        return {}
    names = ("conv_kernel_dim", "num_key_heads", "num_value_heads")
    dims = ("key_head_dim", "value_head_dim")
    return {f"linear_{n}": getattr(model.arch, f"linear_{n}") for n in (*names, *dims)}


def experts(model: TinyModel, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    moe = model.arch.moe
    if moe is None:
        return {}
    router = next(n for n in shapes if n.endswith("mlp.gate.weight"))
    layer = router.removesuffix("gate.weight")
    width = shapes[f"{layer}experts.0.gate_proj.weight"][0]
    dense = [i for i in range(model.arch.num_layers) if is_dense(shapes, i)]
    found: dict[str, Any] = {
        "num_experts": shapes[router][0],
        "num_experts_per_tok": min(moe.top_k, shapes[router][0]),
        "moe_intermediate_size": width,
        "norm_topk_prob": moe.norm_topk_prob,
        "mlp_only_layers": dense,
    }
    shared = shapes.get(f"{layer}shared_expert.gate_proj.weight")
    if shared is not None:
        found["shared_expert_intermediate_size"] = shared[0]
    if model.arch.arch_name == "glm4_moe":
        assert shared is not None
        found |= {
            "n_routed_experts": shapes[router][0],
            "n_shared_experts": shared[0] // width,
            "first_k_dense_replace": len(dense),
            "routed_scaling_factor": moe.routed_scaling_factor,
            "attention_bias": True,
            "use_qk_norm": True,
        }
    return found


def is_dense(shapes: dict[str, tuple[int, ...]], layer: int) -> bool:
    return f"model.layers.{layer}.mlp.gate.weight" not in shapes


def theirs(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under the classes' names, experts stacked."""
    state: dict[str, Tensor] = {}
    stacks: dict[str, dict[int, dict[str, Tensor]]] = {}
    for name, tensor in tensors.items():
        layer, found, rest = name.partition(".mlp.experts.")
        if found:
            number, projection = rest.removesuffix(".weight").split(".")
            stacks.setdefault(layer, {}).setdefault(int(number), {})[projection] = tensor
        elif name.endswith(".mlp.expert_bias"):
            state[name.replace("expert_bias", "gate.e_score_correction_bias")] = tensor
        elif ".shared_expert." in name and f"{layer_of(name)}.mlp.expert_bias" in tensors:
            state[name.replace("shared_expert", "shared_experts")] = tensor
        else:
            state[name] = tensor
    for layer, numbered in stacks.items():
        ordered = [numbered[e] for e in sorted(numbered)]
        both = [torch.cat([e["gate_proj"], e["up_proj"]]) for e in ordered]
        state[f"{layer}.mlp.experts.gate_up_proj"] = torch.stack(both)
        down = torch.stack([e["down_proj"] for e in ordered])
        state[f"{layer}.mlp.experts.down_proj"] = down
    return state


def layer_of(name: str) -> str:
    return name.partition(".mlp.")[0]


def plain_of(model: TinyModel, layers: int | None = None) -> Plain:
    """What the plain loops must be told of the model."""
    arch, moe = model.arch, model.arch.moe
    yarn = None
    if arch.yarn is not None:
        y = arch.yarn
        original = y.original_max_position_embeddings
        yarn = YarnOracle(y.factor, original, y.beta_fast, y.beta_slow, y.attention_factor)
    is_mistral = arch.arch_name == "mistral"
    windowed = [
        i for i, k in enumerate(arch.layer_types) if is_mistral or k == "SlidingAttention"
    ]
    return Plain(
        arch.num_layers if layers is None else layers,
        arch.head_dim,
        arch.rms_norm_eps,
        arch.rope_theta,
        yarn,
        partial=arch.partial_rotary_factor,
        is_interleaved=arch.arch_name == "ernie4_5",
        is_gemma=arch.norm_style == "gemma",
        window=arch.sliding_window,
        windowed=windowed,
        key_dim=arch.linear_key_head_dim or 0,
        value_dim=arch.linear_value_head_dim or 0,
        top_k=moe.top_k if moe else 0,
        renormalises=moe.norm_topk_prob if moe else True,
        routes_by_sigmoid=moe.router_sigmoid if moe else False,
        routed_scale=(moe.routed_scaling_factor or 1.0) if moe else 1.0,
    )


def doubles(model: TinyModel) -> dict[str, Rows]:
    """The model's tensors for the plain loops."""
    return {name: tensor.double().numpy() for name, tensor in model.tensors.items()}
