"""Which models can be run: a table row a family, everything else refused by name.

Plain Python, no torch: a flow asks it before any data is read. The directory's names and
shapes decide the family (models.md §2.2); the header's `arch` record must agree with them,
since a header field that the family's class would silently ignore changes the numbers,
never the shapes.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from cmfio.header import Arch
from nets.errors import ModelError

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Family:
    """A line of models: what marks it, its layer's tensors, and its `transformers` classes.

    `layer_axes` spells each tensor of one decoder layer by the letters of
    `LayerGeometry.sizes`: H hidden, D head_dim, Q heads · head_dim, K key/value heads ·
    head_dim, F FFN neurons.
    """

    title: str
    mark: str | None  # a layer tensor only this family has; None: the family without a mark
    arch_name: re.Pattern[
        str
    ]  # matched against arch_name in lower case without punctuation
    norm_style: Literal["qwen", "gemma"]
    module: str
    class_prefix: str
    layer_axes: Mapping[str, str]


LLAMA_LAYER = {
    "input_layernorm.weight": "H",
    "self_attn.q_proj.weight": "QH",
    "self_attn.k_proj.weight": "KH",
    "self_attn.v_proj.weight": "KH",
    "self_attn.o_proj.weight": "HQ",
    "post_attention_layernorm.weight": "H",
    "mlp.gate_proj.weight": "FH",
    "mlp.up_proj.weight": "FH",
    "mlp.down_proj.weight": "HF",
}
QWEN3_LAYER = LLAMA_LAYER | {"self_attn.q_norm.weight": "D", "self_attn.k_norm.weight": "D"}

# The first row whose mark is in the directory is taken, so the unmarked one comes last.
FAMILIES = (
    Family(
        title="Qwen3",
        mark="self_attn.q_norm.weight",
        arch_name=re.compile("qwen3"),
        norm_style="qwen",
        module="transformers.models.qwen3",
        class_prefix="Qwen3",
        layer_axes=QWEN3_LAYER,
    ),
    Family(
        title="Llama",
        mark=None,
        arch_name=re.compile("llama"),
        norm_style="qwen",
        module="transformers.models.llama",
        class_prefix="Llama",
        layer_axes=LLAMA_LAYER,
    ),
)

# Tensors of families we know but don't run, so that the error can name them.
FOREIGN = {
    r"\.linear_attn\.": "gated delta net layers (Qwen3.5, Qwen3-Next)",
    r"\.mlp\.gate\.weight$|\.experts\.": "a mixture of experts",
    r"\.self_attn\.[qkv]_proj\.bias$": "query, key and value biases (Qwen2)",
    r"\.self_attn\.(kv_[ab]_proj|q_[ab]_proj)": "multi-head latent attention (DeepSeek)",
    r"\.self_attn\.sinks$": "attention sinks",
}

# What `trunk.py` puts into the class, or what only restates the tensors' shapes.
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
        "norm_style",
        "num_attention_heads",
        "num_kv_heads",
        "num_layers",
        "rms_norm_eps",
        "rope_theta",
        "tie_word_embeddings",
        "vocab_size",
        "yarn",
        # These describe LinearAttention layers only, and such a layer is refused.
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
NEUTRAL = {
    "partial_rotary_factor": 1.0,
    "embed_multiplier": 1.0,
    "logit_multiplier": 1.0,
    "num_loops": 1,
}
ACTIVATIONS = {"silu": "silu", "gelu_tanh": "gelu_pytorch_tanh"}


def runnable() -> str:
    """The families' names for an error text, "Qwen3, Llama"."""
    return ", ".join(family.title for family in FAMILIES)


def find_family(arch: Arch, shapes: Shapes) -> Family:
    """The family of a model; ModelError if it is none of the table or asks for more."""
    _refuse_foreign_tensors(shapes)
    family = _family_by_tensors(shapes)
    if not family.arch_name.match(_spelling(arch)):
        raise ModelError(
            f"arch.arch_name is {arch.arch_name!r} and the tensors are laid out as "
            f"{family.title}'s; this version runs {runnable()}, named so in the header"
        )
    _check_arch(family, arch)
    return family


def family_named(arch: Arch) -> Family:
    """The family the header names, for a model without tensors; the same refusals."""
    for family in FAMILIES:
        if family.arch_name.match(_spelling(arch)):
            _check_arch(family, arch)
            return family
    raise ModelError(
        f"arch.arch_name is {arch.arch_name!r}; this version runs {runnable()}"
    )


def is_trunk_tensor(name: str) -> bool:
    """True for a tensor of the trunk: neither the draft's nor a skill's."""
    return not name.startswith(("model.mtp.", "skill."))


def _spelling(arch: Arch) -> str:
    return re.sub("[^a-z0-9]", "", arch.arch_name.lower())


def _refuse_foreign_tensors(shapes: Shapes) -> None:
    for name in shapes:
        for pattern, what in FOREIGN.items():
            if not name.startswith("skill.") and re.search(pattern, name):
                raise ModelError(
                    f"tensor {name!r} belongs to {what}; this version runs {runnable()} "
                    "with dense layers"
                )


def _family_by_tensors(shapes: Shapes) -> Family:
    for family in FAMILIES:
        mark = family.mark
        if mark is None or any(n.endswith(mark) for n in shapes if is_trunk_tensor(n)):
            return family
    raise AssertionError("FAMILIES ends with a family without a mark")


def _check_arch(family: Family, arch: Arch) -> None:
    """Refuses a header field that the family's class would ignore or read otherwise."""
    if arch.norm_style != family.norm_style:
        raise ModelError(
            f"arch.norm_style is {arch.norm_style!r}, {family.title} norms are "
            f"{family.norm_style!r}; the header is wrong, convert the model again"
        )
    if arch.hidden_act not in ACTIVATIONS:
        raise ModelError(
            f"arch.hidden_act is {arch.hidden_act!r}; this version runs "
            f"{', '.join(ACTIVATIONS)}"
        )
    _check_layer_types(arch)
    _refuse_unexpressed("arch", family, arch, EXPRESSED, _neutral_values(arch))
    if arch.yarn is not None:
        _refuse_unexpressed("arch.yarn", family, arch.yarn, YARN_EXPRESSED, {})


def _check_layer_types(arch: Arch) -> None:
    if len(arch.layer_types) != arch.num_layers:
        raise ModelError(
            f"arch.layer_types has {len(arch.layer_types)} entries for {arch.num_layers} "
            "layers; the header is damaged, convert the model again"
        )
    for i, kind in enumerate(arch.layer_types):
        if kind != "FullAttention":
            raise ModelError(
                f"arch.layer_types[{i}] is {kind!r}; this version runs FullAttention only"
            )


def _neutral_values(arch: Arch) -> dict[str, object]:
    """The values at which a field we don't express changes nothing."""
    factors = arch.rope_freq_factors
    return NEUTRAL | {
        "v_head_dim": arch.head_dim,
        "query_pre_attn_scalar": arch.head_dim,
        "rope_freq_factors": factors if factors and set(factors) == {1.0} else None,
    }


def _refuse_unexpressed(
    where: str,
    family: Family,
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
            f"{where}.{field} is {value!r}, which the {family.title} class can't express; "
            f"this version runs plain {runnable()} models"
        )
