"""Which tensors a plain Llama or Qwen3 model has, in a container's order and names."""

from collections.abc import Iterable

from cmfio.arch import Arch
from cmfio.errors import ParseError, UnsupportedFeature

LAYER = (
    "input_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "self_attn.q_norm",
    "self_attn.k_norm",
    "post_attention_layernorm",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
ONLY_QWEN3 = ("self_attn.q_norm", "self_attn.k_norm")
DRAFT = ("enorm", "hnorm", "eh_proj", "norm")


def model_order(names: Iterable[str], arch: Arch, where: str) -> list[str]:
    """`names`, canonical, as a container lists them: embedding, layers, norm, head, draft.

    ParseError if one is missing, UnsupportedFeature if one has no place in such a model.
    """
    given = set(names)
    trunk = ["model.embed_tokens.weight"]
    for layer in range(arch.num_layers):
        trunk += layer_names(f"model.layers.{layer}.", arch)
    trunk.append("model.norm.weight")
    missing = next((name for name in trunk if name not in given), None)
    if missing is not None:
        raise ParseError(f"{where}: a {arch.arch_name} model needs tensor {missing!r}")
    # A tied head may be stored too; a declared draft may be kept elsewhere.
    rest = ["lm_head.weight", *(f"model.mtp.{part}.weight" for part in DRAFT)]
    for layer in range(arch.mtp.num_layers if arch.mtp is not None else 0):
        rest += layer_names(f"model.mtp.layers.{layer}.", arch)
    if not arch.tie_word_embeddings and "lm_head.weight" not in given:
        raise ParseError(f"{where}: the head isn't tied, so it needs 'lm_head.weight'")
    unplaced = sorted(given - {*trunk, *rest})
    if unplaced:
        raise UnsupportedFeature(
            f"{where}: tensor {unplaced[0]!r} has no place in a {arch.arch_name} model; "
            "this variant isn't known here"
        )
    return trunk + [name for name in rest if name in given]


def layer_names(prefix: str, arch: Arch) -> list[str]:
    """The tensors of one decoder layer."""
    has_norms = arch.arch_name.lower() == "qwen3"
    return [
        f"{prefix}{part}.weight" for part in LAYER if has_norms or part not in ONLY_QWEN3
    ]
