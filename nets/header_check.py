"""What a header may say of a family: a field its class would ignore is refused by name.

Such a field changes the numbers and never the shapes, so nothing would crash. No torch.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from cmfio.header import Arch, LayerType
from nets.errors import ModelError

# What every family's builder puts into the class, or what restates the tensors' shapes.
EXPRESSED = frozenset(
    {
        "arch_name",
        "attention_heads_per_layer",
        "head_dim",
        "hidden_act",
        "hidden_size",
        "intermediate_size",
        "kv_heads_per_layer",
        "layer_types",
        "max_position_embeddings",
        "mtp",
        "no_rope_layers",
        "norm_style",
        "num_attention_heads",
        "num_kv_heads",
        "num_layers",
        "rms_norm_eps",
        "rope_theta",
        "tie_word_embeddings",
        "vocab_size",
        "yarn",
        # These describe LinearAttention layers only; without one they say nothing.
        "linear_conv_kernel_dim",
        "linear_key_head_dim",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_value_head_dim",
    }
)
YARN_EXPRESSED = frozenset(
    {
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "factor",
        "original_max_position_embeddings",
    }
)
# Widths and numbers of experts are the tensors', the rest of a router's record isn't.
MOE_EXPRESSED = frozenset(
    {
        "moe_intermediate_size",
        "norm_topk_prob",
        "num_experts",
        "shared_expert_intermediate_size",
        "top_k",
    }
)
NEUTRAL: Mapping[str, object] = {
    "partial_rotary_factor": 1.0,
    "embed_multiplier": 1.0,
    "logit_multiplier": 1.0,
    "num_loops": 1,
}
MOE_NEUTRAL: Mapping[str, object] = {"routed_scaling_factor": 1.0, "n_group": 1}
ACTIVATIONS = {"silu": "silu", "gelu_tanh": "gelu_pytorch_tanh"}


@dataclass(frozen=True)
class HeaderRules:
    """Which fields beyond `EXPRESSED` a family's class honours."""

    has_windows: bool = False  # sliding_window, on layers of type SlidingAttention
    windows_all: bool = False  # on every layer, where layer_types names none
    has_partial_rotary: bool = False
    has_linear: bool = False  # linear_core, as far as it is the gated delta net
    has_experts: bool = False
    has_shared: bool = False  # a shared expert beside them
    routes_by_sigmoid: bool = False  # with routed_scaling_factor; else by softmax
    always_renormalises: bool = False  # moe.norm_topk_prob must say so

    @property
    def expressed(self) -> frozenset[str]:
        """The fields of `arch` that pass with any value."""
        chosen = {
            "sliding_window": self.has_windows,
            "partial_rotary_factor": self.has_partial_rotary,
            "linear_core": self.has_linear,
            "moe": self.has_experts,
        }
        return EXPRESSED | {name for name, is_on in chosen.items() if is_on}


def check_arch(
    title: str,
    norm_style: str,
    layer_types: Collection[LayerType],
    rules: HeaderRules,
    arch: Arch,
) -> None:
    """ModelError names the first field that the family's class would ignore or misread."""
    if arch.norm_style != norm_style:
        raise ModelError(
            f"arch.norm_style is {arch.norm_style!r}, {title} norms are "
            f"{norm_style!r}; the header is wrong, convert the model again"
        )
    if arch.hidden_act not in ACTIVATIONS:
        raise ModelError(
            f"arch.hidden_act is {arch.hidden_act!r}; this version runs "
            f"{', '.join(ACTIVATIONS)}"
        )
    _check_layer_types(title, layer_types, arch)
    _refuse_unexpressed("arch", title, arch, rules.expressed, _neutral_values(arch))
    if arch.yarn is not None:
        _refuse_unexpressed("arch.yarn", title, arch.yarn, YARN_EXPRESSED, {})
    if arch.linear_core is not None and arch.linear_core.kind != "gated_delta_net":
        raise ModelError(
            f"arch.linear_core.kind is {arch.linear_core.kind!r}; {title} layers are "
            "gated_delta_net"
        )
    if rules.has_experts:
        _check_moe(title, rules, arch)


def _check_layer_types(title: str, known: Collection[LayerType], arch: Arch) -> None:
    if len(arch.layer_types) != arch.num_layers:
        raise ModelError(
            f"arch.layer_types has {len(arch.layer_types)} entries for {arch.num_layers} "
            "layers; the header is damaged, convert the model again"
        )
    for i, kind in enumerate(arch.layer_types):
        if kind not in known:
            raise ModelError(
                f"arch.layer_types[{i}] is {kind!r}; a {title} model here has "
                f"{', '.join(known)} only"
            )
        if kind == "SlidingAttention" and not arch.sliding_window:
            raise ModelError(
                f"arch.layer_types[{i}] is {kind!r} and arch.sliding_window is "
                f"{arch.sliding_window!r}; the header must say how far a row sees"
            )


def _check_moe(title: str, rules: HeaderRules, arch: Arch) -> None:
    if arch.moe is None:
        raise ModelError(
            f"arch.moe is missing; a {title} header must say how many experts serve a row, "
            "convert the model again"
        )
    if arch.moe.router_sigmoid is not rules.routes_by_sigmoid:
        raise ModelError(
            f"arch.moe.router_sigmoid is {arch.moe.router_sigmoid}, a {title} router has "
            f"{rules.routes_by_sigmoid}; the header is wrong or the model of another family"
        )
    if rules.always_renormalises and not arch.moe.norm_topk_prob:
        raise ModelError(
            f"arch.moe.norm_topk_prob is false, the weights of a {title} row's experts "
            "always sum to 1; the header is wrong or the model of another family"
        )
    expressed = MOE_EXPRESSED | {"router_sigmoid"}
    if rules.routes_by_sigmoid:
        expressed |= {"routed_scaling_factor"}
    if not rules.has_shared:
        expressed -= {"shared_expert_intermediate_size"}
    _refuse_unexpressed("arch.moe", title, arch.moe, expressed, MOE_NEUTRAL)


def _neutral_values(arch: Arch) -> dict[str, object]:
    """The values at which a field we don't express changes nothing."""
    factors = arch.rope_freq_factors
    return {
        **NEUTRAL,
        "v_head_dim": arch.head_dim,
        "query_pre_attn_scalar": arch.head_dim,
        "rope_freq_factors": factors if factors and set(factors) == {1.0} else None,
    }


def _refuse_unexpressed(
    where: str,
    title: str,
    record: Iterable[tuple[str, object]],
    expressed: frozenset[str],
    neutral: Mapping[str, object],
) -> None:
    """Refuses a field, known or not, that is neither expressed nor absent nor neutral."""
    for field, value in record:
        is_off = value is None or value is False or value in ([], ())
        if field in expressed or is_off or value == neutral.get(field):
            continue
        raise ModelError(
            f"{where}.{field} is {value!r}, which the {title} class can't express; this "
            "version runs it only without"
        )
