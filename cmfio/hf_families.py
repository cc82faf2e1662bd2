"""The families of checkpoints that are read and written: a row each, nothing but facts.

What a row doesn't say is refused by name, on the way in and on the way out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cmfio.arch import LayerType
from cmfio.errors import UnsupportedFeature
from cmfio.hf_tensors import (
    ATTENTION,
    DELTA_NET,
    DELTA_NET_FUSED,
    QK_NORMS,
    QKV_BIASES,
    ROUTER_BIAS,
    SHARED_EXPERT,
    SHARED_GATE,
    Names,
)
from cmfio.json_text import Json

# Settings that must have this value, or be absent: the header has no field for another.
PLAIN: Mapping[str, tuple[Json, ...]] = {
    "mlp_bias": (False,),
    "use_bias": (False,),
    "pretraining_tp": (1,),
    "logit_scale": (1, 1.0),
    "embedding_multiplier": (1, 1.0),
    "final_logit_softcapping": (),
    "attn_logit_softcapping": (),
    "n_group": (1,),
    "topk_group": (1,),
    "num_expert_group": (1,),
    "attn_output_gate": (True,),
    "scoring_func": ("sigmoid",),
    "mamba_ssm_dtype": ("float32",),
}
NO_BIAS: Mapping[str, tuple[Json, ...]] = {"attention_bias": (False,)}
NO_WINDOW: Mapping[str, tuple[Json, ...]] = {"use_sliding_window": (False,)}
DELTA_SIZES = (
    "linear_conv_kernel_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
)
DELTA_DEFAULTS: Mapping[str, Json] = {
    "linear_conv_kernel_dim": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "partial_rotary_factor": 0.25,
    "full_attention_interval": 4,
    "head_dim": 256,
}


@dataclass(frozen=True)
class Experts:
    """A family's mixture: its config's keys, and which layers have it.

    `count_keys`: any of them is read, the first is written. `shared`: is the shared
    expert's width said in neurons, or as a number of experts; None: there is none.
    """

    count_keys: tuple[str, ...] = ("num_experts", "num_local_experts")
    dense_key: Literal["mlp_only_layers", "first_k_dense_replace"] | None = None
    shared: Literal["shared_expert_intermediate_size", "n_shared_experts"] | None = None
    says_renormalised: bool = True  # else its weights always are
    is_sigmoid: bool = False
    extra: Names = ()  # beside the router and the experts; those of `shared` included


@dataclass(frozen=True)
class HfFamily:
    """One line of models as its checkpoints are: config.json and tensor names.

    `model_type` is the text model's; `wrappers` are those of configs that hold it as
    `text_config`. `attention` and `linear` are a mixer's tensors, `flags` further ones that
    a setting announces. `defaults` stand in for keys that are absent.
    """

    model_type: str
    arch_name: str
    causal_class: str
    head: str  # the row of hf_heads.py that a new draft is written as
    wrappers: tuple[str, ...] = ()
    norm_style: Literal["qwen", "gemma"] = "qwen"
    attention: Names = ATTENTION
    linear: Names | None = None
    flags: Mapping[str, Names] = field(default_factory=dict)
    experts: Experts | None = None
    windows: Literal["none", "some", "all"] = "none"
    has_partial_rotary: bool = False
    plain: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Json] = field(default_factory=dict)
    renames: Mapping[str, str] = field(default_factory=dict)  # canonical part: theirs

    @property
    def layer_types(self) -> frozenset[LayerType]:
        """The layer types that its config can say."""
        kinds: list[LayerType] = ["FullAttention"]
        if self.windows != "none":
            kinds.append("SlidingAttention")
        if self.linear is not None:
            kinds.append("LinearAttention")
        return frozenset(kinds)


FAMILIES = (
    HfFamily(
        model_type="llama",
        arch_name="llama",
        causal_class="LlamaForCausalLM",
        head="qwen",
        plain=NO_BIAS,
    ),
    HfFamily(
        model_type="mistral",
        arch_name="mistral",
        causal_class="MistralForCausalLM",
        head="qwen",
        windows="all",
        plain=NO_BIAS,
        defaults={"sliding_window": 4096},
    ),
    HfFamily(
        model_type="qwen2",
        arch_name="qwen2",
        causal_class="Qwen2ForCausalLM",
        head="qwen",
        attention=(*ATTENTION, *QKV_BIASES),
        windows="some",
    ),
    HfFamily(
        model_type="qwen3",
        arch_name="qwen3",
        causal_class="Qwen3ForCausalLM",
        head="qwen",
        attention=(*ATTENTION, *QK_NORMS),
        windows="some",
        plain=NO_BIAS,
    ),
    HfFamily(
        model_type="qwen3_moe",
        arch_name="qwen3_moe",
        causal_class="Qwen3MoeForCausalLM",
        head="qwen",
        attention=(*ATTENTION, *QK_NORMS),
        experts=Experts(dense_key="mlp_only_layers"),
        plain={**NO_BIAS, **NO_WINDOW},
        defaults={"norm_topk_prob": False},
    ),
    HfFamily(
        model_type="qwen3_next",
        arch_name="qwen3_next",
        causal_class="Qwen3NextForCausalLM",
        head="qwen",
        norm_style="gemma",
        attention=(*ATTENTION, *QK_NORMS),
        linear=DELTA_NET_FUSED,
        experts=Experts(
            dense_key="mlp_only_layers",
            shared="shared_expert_intermediate_size",
            extra=(*SHARED_EXPERT, SHARED_GATE),
        ),
        has_partial_rotary=True,
        plain=NO_BIAS,
        defaults={**DELTA_DEFAULTS, "norm_topk_prob": True},
    ),
    HfFamily(
        model_type="qwen3_5_text",
        arch_name="qwen3_5",
        causal_class="Qwen3_5ForCausalLM",
        head="qwen",
        wrappers=("qwen3_5",),
        norm_style="gemma",
        attention=(*ATTENTION, *QK_NORMS),
        linear=DELTA_NET,
        has_partial_rotary=True,
        plain=NO_BIAS,
        defaults=DELTA_DEFAULTS,
    ),
    HfFamily(
        model_type="qwen3_5_moe_text",
        arch_name="qwen3_5_moe",
        causal_class="Qwen3_5MoeForCausalLM",
        head="qwen",
        wrappers=("qwen3_5_moe",),
        norm_style="gemma",
        attention=(*ATTENTION, *QK_NORMS),
        linear=DELTA_NET,
        experts=Experts(
            shared="shared_expert_intermediate_size",
            says_renormalised=False,
            extra=(*SHARED_EXPERT, SHARED_GATE),
        ),
        has_partial_rotary=True,
        plain=NO_BIAS,
        defaults=DELTA_DEFAULTS,
    ),
    HfFamily(
        model_type="glm4_moe",
        arch_name="glm4_moe",
        causal_class="Glm4MoeForCausalLM",
        head="glm",
        flags={"attention_bias": QKV_BIASES, "use_qk_norm": QK_NORMS},
        experts=Experts(
            count_keys=("n_routed_experts", "num_local_experts"),
            dense_key="first_k_dense_replace",
            shared="n_shared_experts",
            is_sigmoid=True,
            extra=(ROUTER_BIAS, *SHARED_EXPERT),
        ),
        has_partial_rotary=True,
        defaults={
            "attention_bias": False,
            "use_qk_norm": False,
            "partial_rotary_factor": 0.5,
            "first_k_dense_replace": 1,
            "n_shared_experts": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.0,
            "rms_norm_eps": 1e-5,
        },
        renames={"mlp.shared_expert.": "mlp.shared_experts."},
    ),
    HfFamily(
        model_type="mimo",
        arch_name="mimo",
        causal_class="MiMoForCausalLM",
        head="mimo",
        attention=(*ATTENTION, *QKV_BIASES),
        plain={**NO_WINDOW, "attention_bias": (True,)},
    ),
    HfFamily(
        model_type="ernie4_5",
        arch_name="ernie4_5",
        causal_class="Ernie4_5ForCausalLM",
        head="ernie",
        plain=NO_BIAS,
        defaults={
            "rope_theta": 500000.0,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
        },
    ),
)


def family_of_type(model_type: Json, where: str) -> HfFamily:
    """The row of a config's `model_type`, wrapped or not; UnsupportedFeature otherwise."""
    for family in FAMILIES:
        if model_type in (family.model_type, *family.wrappers):
            return family
    raise UnsupportedFeature(
        f"{where}: model_type {model_type!r} can't be read, only {_known()}"
    )


def family_of_arch(arch_name: str, where: str) -> HfFamily:
    """The row of a header's `arch_name`; UnsupportedFeature otherwise."""
    spelled = arch_name.lower().replace(".", "_").replace("-", "_").removesuffix("_text")
    for family in FAMILIES:
        if spelled == family.arch_name:
            return family
    raise UnsupportedFeature(
        f"{where}: a {arch_name} model can't be written as a checkpoint, only {_known()}"
    )


def _known() -> str:
    return ", ".join(family.arch_name for family in FAMILIES)
