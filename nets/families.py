"""Which models can be run: the family of a header and a directory, or a refusal by name.

Plain Python, no torch: a flow asks it before any data is read. The header's name finds the
row, and among rows of one name the directory's tensors decide. What the header says beside
is checked in `header_check`, the tensors in `geometry`.
"""

import re
from collections.abc import Iterator

from cmfio.header import Arch, LayerType
from nets.errors import ModelError
from nets.family import Family
from nets.family_rows import FAMILIES
from nets.header_check import check_arch
from nets.layer_tensors import Shapes, is_named

__all__ = [
    "FAMILIES",
    "Family",
    "Shapes",
    "family_named",
    "find_family",
    "is_trunk_tensor",
    "runnable",
]

# Tensors some family has that others have not, so that the error can name them.
FOREIGN = {
    r"\.linear_attn\.": "gated delta net layers (Qwen3.5, Qwen3-Next)",
    r"\.mlp\.gate\.weight$|\.experts\.": "a mixture of experts",
    r"\.self_attn\.[qkv]_proj\.bias$": "query, key and value biases (Qwen2)",
    r"\.self_attn\.(kv_[ab]_proj|q_[ab]_proj)": "multi-head latent attention (DeepSeek)",
    r"\.self_attn\.sinks$": "attention sinks",
    r"\.kda_attn\.": "Kimi delta attention",
    r"\.short_conv\.": "short convolutions (LFM2)",
}
LAYER = re.compile(r"(model\.layers\.\d+|model\.mtp\.layers\.\d+)\.")


def runnable() -> str:
    """The families' names for an error text, "Llama, Mistral, …"."""
    return ", ".join(family.title for family in FAMILIES)


def find_family(arch: Arch, shapes: Shapes) -> Family:
    """The family of a model; ModelError if it is none of the table or asks for more."""
    named = list(_rows_named(arch))
    family = next((row for row in named if _has_mark(row, shapes)), None)
    if family is None:
        raise ModelError(
            f"arch.arch_name is {arch.arch_name!r}; this version runs {runnable()}, named "
            "so in the header"
        )
    _refuse_foreign_tensors(family, shapes)
    check_arch(family.title, family.norm_style, family.layer_types, family.rules, arch)
    return family


def family_named(arch: Arch) -> Family:
    """The family the header names, for a model without tensors; the same refusals.

    ModelError too for a hybrid or a mixture: how wide those are only tensors say.
    """
    plain: tuple[LayerType, ...] = ("FullAttention",)
    for family in _rows_named(arch):
        if family.is_plain:
            check_arch(family.title, family.norm_style, plain, family.rules, arch)
            return family
    titles = ", ".join(family.title for family in FAMILIES if family.is_plain)
    raise ModelError(
        f"arch.arch_name is {arch.arch_name!r}; without tensors only plain models can be "
        f"described: {titles}"
    )


def is_trunk_tensor(name: str) -> bool:
    """True for a tensor of the trunk: neither the draft's nor a skill's."""
    return not name.startswith(("model.mtp.", "skill."))


def _rows_named(arch: Arch) -> Iterator[Family]:
    spelling = re.sub("[^a-z0-9]", "", arch.arch_name.lower())
    return (row for row in FAMILIES if row.arch_name.match(spelling))


def _has_mark(family: Family, shapes: Shapes) -> bool:
    mark = family.mark
    return mark is None or any(
        name.endswith(f".{mark}") and is_trunk_tensor(name) for name in shapes
    )


def _refuse_foreign_tensors(family: Family, shapes: Shapes) -> None:
    own = family.every_tensor()
    for name in shapes:
        suffix = LAYER.sub("", name, count=1)
        if name.startswith("skill.") or is_named(suffix, own):
            continue
        for pattern, what in FOREIGN.items():
            if re.search(pattern, name):
                raise ModelError(
                    f"tensor {name!r} belongs to {what}, which {family.title} models "
                    f"have not; this version runs {runnable()}"
                )
