"""Tensor names of Hugging Face checkpoints, made the container's."""

import re
from collections.abc import Callable, Mapping

from cmfio.hf_families import HfFamily
from cmfio.hf_heads import MTP, HeadRow, head_name

VISION_PREFIXES = (
    "model.vision_embedder.",
    "model.embed_audio.",
    "model.embed_vision.",
    "vision_tower.",
    "mm_projector.",
    "model.audio_tower.",
    "model.vision_tower.",
    "model.visual.",
)
LANGUAGE_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.")
MTP_NAMES = {
    "fc.weight": "eh_proj.weight",
    "pre_fc_norm_embedding.weight": "enorm.weight",
    "pre_fc_norm_hidden.weight": "hnorm.weight",
}
DEEPSEEK_TOP = {
    "embed.weight": "model.embed_tokens.weight",
    "head.weight": "lm_head.weight",
    "norm.weight": "model.norm.weight",
}
DEEPSEEK_LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn.gate.weight": "mlp.gate.weight",
    "ffn.gate.bias": "mlp.expert_bias",
    "ffn.gate.bias_vl": "mlp.expert_bias_vl",
    "ffn.gate.tid2eid": "mlp.tid2eid",
}
DEEPSEEK_EXPERTS = {
    "ffn.shared_experts.": "mlp.shared_expert.",
    "ffn.experts.": "mlp.experts.",
}
BLOCK_SPARSE = {
    ".block_sparse_moe.gate.e_score_correction_bias": ".mlp.expert_bias",
    ".block_sparse_moe.shared_experts": ".mlp.shared_expert",
    ".block_sparse_moe.": ".mlp.",
}
SHARED_EXPERTS = {
    ".mlp.shared_experts.": ".mlp.shared_expert.",
    ".mlp.experts.e_score_correction_bias": ".mlp.expert_bias",
}
HUNYUAN = {
    "self_attn.query_layernorm": "self_attn.q_norm",
    "self_attn.key_layernorm": "self_attn.k_norm",
    "mlp.router.gate": "mlp.gate",
    "mlp.shared_mlp": "mlp.shared_expert",
}
LFM2 = {
    ".operator_norm.": ".input_layernorm.",
    ".ffn_norm.": ".post_attention_layernorm.",
    ".feed_forward.": ".mlp.",
    ".conv.": ".short_conv.",
    ".self_attn.out_proj.": ".self_attn.o_proj.",
    ".q_layernorm.": ".q_norm.",
    ".k_layernorm.": ".k_norm.",
    "model.embedding_norm.": "model.norm.",
}
WEIGHT_NUMBERS = {"1": "gate_proj", "2": "down_proj", "3": "up_proj"}


def canonical_name(source: str) -> str | None:
    """The container's name of a checkpoint's tensor; None for vision and audio towers.

    The first rule that applies decides. `language_model.lm_head.weight` becomes
    `model.lm_head.weight`, as in the peer.
    """
    if ".visual." in source or source.startswith("visual."):
        return None
    rest = _after_mtp(source)
    if rest is not None:
        return "model.mtp." + MTP_NAMES.get(rest, rest)
    if source.startswith(VISION_PREFIXES):
        return None
    for prefix in LANGUAGE_PREFIXES:
        if source.startswith(prefix):
            return canonical_name("model." + source.removeprefix(prefix))
    for rule in RULES:
        renamed = rule(source)
        if renamed is not None:
            return renamed
    return source


def checkpoint_name(name: str, family: HfFamily, row: HeadRow, first: int) -> str:
    """The name of a container's tensor in a checkpoint of its family.

    `row` names the draft, whose layer gets number `first`. `canonical_name` and
    `find_head` give the name back.
    """
    if name.startswith(MTP):
        return head_name(row, name, first, family.renames)
    for ours, theirs in family.renames.items():
        name = name.replace(ours, theirs)
    return name


def _after_mtp(source: str) -> str | None:
    for prefix in ("mtp.", "model.mtp."):
        if source.startswith(prefix):
            return source.removeprefix(prefix)
    _, found, rest = source.partition(".mtp.")
    return rest if found else None


def _deepseek(source: str) -> str | None:
    if source in DEEPSEEK_TOP:
        return DEEPSEEK_TOP[source]
    if source.startswith("hc_head_"):
        return "model." + source
    layer = re.match(r"layers\.\d+\.", source)
    if layer is None:
        return None
    rest = source[layer.end() :]
    rest = DEEPSEEK_LAYER.get(rest, rest)
    for prefix, ours in DEEPSEEK_EXPERTS.items():
        if rest.startswith(prefix):
            rest = _numbered(ours + rest.removeprefix(prefix))
    return "model." + layer.group() + rest.replace("attn.", "self_attn.")


def _block_sparse(source: str) -> str | None:
    for theirs, ours in BLOCK_SPARSE.items():
        if theirs in source:
            return _numbered(source.replace(theirs, ours))
    return None


def _shared_experts(source: str) -> str | None:
    return _replaced(source, SHARED_EXPERTS)


def _hunyuan(source: str) -> str | None:
    return _replaced(source, HUNYUAN)


def _lfm2(source: str) -> str | None:
    renamed = _replaced(source, LFM2)
    return renamed if renamed is None else _numbered(renamed)


def _replaced(source: str, table: Mapping[str, str]) -> str | None:
    """`source` with all of the table's parts replaced; None where it has none of them."""
    renamed = source
    for theirs, ours in table.items():
        renamed = renamed.replace(theirs, ours)
    return renamed if renamed != source else None


def _numbered(name: str) -> str:
    """w1, w2, w3 of an MLP by their names."""
    return re.sub(
        r"\.w([123])\.(weight|scale)$",
        lambda found: f".{WEIGHT_NUMBERS[found[1]]}.{found[2]}",
        name,
    )


RULES: tuple[Callable[[str], str | None], ...] = (
    _deepseek,
    _block_sparse,
    _shared_experts,
    _hunyuan,
    _lfm2,
)
