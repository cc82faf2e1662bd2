"""The table of runnable models, made from the code: `python -m nets.family_table`."""

import sys

from nets.families import FAMILIES, Family
from nets.layer_tensors import GATED_ATTENTION, HEAD_NORMS, QKV_BIASES, SHARED_EXPERT

HEAD = (
    "family",
    "`transformers` class",
    "attention",
    "other layers",
    "FFN",
    "rotary",
    "norms",
)


def families_table() -> str:
    """A line a family, in markdown: its class, and what its layers may be."""
    lines = [HEAD, ["---"] * len(HEAD), *(_row(family) for family in FAMILIES)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _row(family: Family) -> tuple[str, ...]:
    return (
        family.title,
        f"`{family.class_prefix}ForCausalLM`",
        _attention(family),
        "" if family.linear is None else "gated delta nets",
        _ffn(family),
        family.rotary + (", partial" if family.rules.has_partial_rotary else ""),
        "1 + w" if family.norm_style == "gemma" else "w",
    )


def _attention(family: Family) -> str:
    tensors = family.attention
    is_gated = (
        tensors["self_attn.q_proj.weight"] == GATED_ATTENTION["self_attn.q_proj.weight"]
    )
    biases, norms = "q, k, v biases", "q, k norms"
    said = {
        biases: set(QKV_BIASES) <= set(tensors),
        norms: set(HEAD_NORMS) <= set(tensors),
        f"{biases} or {norms} if there": bool(family.options),
        "output gate": is_gated,
        "sliding windows": family.rules.has_windows,
    }
    return ", ".join(what for what, is_so in said.items() if is_so) or "plain"


def _ffn(family: Family) -> str:
    if family.sparse is None:
        return "MLP"
    router = "sigmoid" if family.rules.routes_by_sigmoid else "softmax"
    shared = ", a shared one" if family.rules.has_shared else ""
    gate = " behind a gate" if set(SHARED_EXPERT) <= set(family.sparse) else ""
    return f"MLP, or experts by {router}{shared}{gate}"


if __name__ == "__main__":
    sys.stdout.write(families_table())
