"""The table of families: a row for each line of models that can be run. No torch."""

import re

from nets.family import Family
from nets.header_check import HeaderRules
from nets.layer_tensors import (
    ATTENTION,
    DELTA_NET,
    DELTA_NET_FUSED,
    EXPERTS,
    GATED_ATTENTION,
    GLM_SHARED_EXPERT,
    HEAD_NORMS,
    QKV_BIASES,
    ROUTER,
    SHARED_EXPERT,
)

# Why a family's layers are run as they are.
NO_COMPILE_EXPERTS = "torch compiles the experts' grouped products in bf16 only"
NO_COMPILE_DELTA = "the delta rule's loop over a window would take minutes to compile"
_WINDOWS = HeaderRules(has_windows=True)
_HYBRID = HeaderRules(has_partial_rotary=True, has_linear=True)

# Among rows of one name the first whose mark is in the directory is taken.
FAMILIES = (
    Family(
        title="Llama",
        arch_name=re.compile("llama(?![0-9])"),
        module="llama",
        class_prefix="Llama",
        attention=ATTENTION,
    ),
    Family(
        title="Mistral",
        arch_name=re.compile("mistral(?![0-9])"),
        module="mistral",
        class_prefix="Mistral",
        attention=ATTENTION,
        rules=HeaderRules(has_windows=True, windows_all=True),
    ),
    Family(
        title="Qwen2",
        arch_name=re.compile("qwen2(5)?(?!moe|vl|audio|omni|[0-9])"),
        module="qwen2",
        class_prefix="Qwen2",
        attention={**ATTENTION, **QKV_BIASES},
        rules=_WINDOWS,
    ),
    Family(
        title="MiMo-7B",
        arch_name=re.compile("mimo(?!v2)"),
        module="qwen2",
        class_prefix="Qwen2",
        attention={**ATTENTION, **QKV_BIASES},
        rules=_WINDOWS,
    ),
    Family(
        title="Ernie-4.5",
        arch_name=re.compile("ernie45(?!moe|vl)"),
        module="ernie4_5",
        class_prefix="Ernie4_5",
        attention=ATTENTION,
        rotary="interleaved",
        needs_draft_norm=False,
    ),
    Family(
        title="Qwen3-MoE",
        arch_name=re.compile("qwen3(?![0-9]|next|vl|omni)"),
        module="qwen3_moe",
        class_prefix="Qwen3Moe",
        attention={**ATTENTION, **HEAD_NORMS},
        sparse=EXPERTS,
        mark=ROUTER,
        rules=HeaderRules(has_windows=True, has_experts=True),
        not_compiled=NO_COMPILE_EXPERTS,
    ),
    Family(
        title="Qwen3",
        arch_name=re.compile("qwen3(?![0-9]|next|vl|omni)"),
        module="qwen3",
        class_prefix="Qwen3",
        attention={**ATTENTION, **HEAD_NORMS},
        rules=_WINDOWS,
    ),
    Family(
        title="Qwen3-Next",
        arch_name=re.compile("qwen3next"),
        module="qwen3_next",
        class_prefix="Qwen3Next",
        attention=GATED_ATTENTION,
        linear=DELTA_NET_FUSED,
        sparse={**EXPERTS, **SHARED_EXPERT},
        mark="linear_attn.in_proj_qkvz.weight",
        norm_style="gemma",
        rules=HeaderRules(
            has_partial_rotary=True, has_linear=True, has_experts=True, has_shared=True
        ),
        not_compiled=NO_COMPILE_DELTA,
    ),
    Family(
        title="Qwen3.5-MoE",
        arch_name=re.compile("qwen3([568](?![0-9])|next)"),
        module="qwen3_5_moe",
        class_prefix="Qwen3_5Moe",
        attention=GATED_ATTENTION,
        linear=DELTA_NET,
        sparse={**EXPERTS, **SHARED_EXPERT},
        mark=ROUTER,
        norm_style="gemma",
        rules=HeaderRules(
            has_partial_rotary=True,
            has_linear=True,
            has_experts=True,
            has_shared=True,
            always_renormalises=True,
        ),
        dense_classes=("qwen3_5", "Qwen3_5"),
        not_compiled=NO_COMPILE_DELTA,
    ),
    Family(
        title="Qwen3.5",
        arch_name=re.compile("qwen3([568](?![0-9])|next)"),
        module="qwen3_5",
        class_prefix="Qwen3_5",
        attention=GATED_ATTENTION,
        linear=DELTA_NET,
        norm_style="gemma",
        rules=_HYBRID,
        not_compiled=NO_COMPILE_DELTA,
    ),
    Family(
        title="GLM-4.5",
        arch_name=re.compile("glm4moe(?!lite)"),
        module="glm4_moe",
        class_prefix="Glm4Moe",
        attention=ATTENTION,
        sparse={**EXPERTS, **GLM_SHARED_EXPERT},
        options={"attention_bias": QKV_BIASES, "use_qk_norm": HEAD_NORMS},
        rules=HeaderRules(
            has_partial_rotary=True,
            has_experts=True,
            has_shared=True,
            routes_by_sigmoid=True,
        ),
        not_compiled=NO_COMPILE_EXPERTS,
    ),
)
