"""What the word for a codec means, and which codec a tensor then gets.

A word is `keep`, a codec's name (`registry.py`), or `profile:NAME` with a name the peer's
converter takes: some of those mean another dtype than they say, or several.
"""

from dataclasses import dataclass

from cmfio.arch import Arch
from cmfio.codecs.base import GROUP, TiledCodec
from cmfio.codecs.registry import CODECS, codec_named
from cmfio.dtypes import Shape, element_count
from cmfio.errors import UnknownCodec, UnsupportedFeature

KEEP = "keep"
PROFILE = "profile:"
# For matrices whose columns don't come in groups of 32, where a codec needs them to.
UNGROUPED = "q8_2f"
FLOATS = ("f32", "f16", "bf16")

FORCE_F32 = (
    ".tid2eid",
    ".self_attn.sinks",
    "._codebook.embed",
    ".mlp.expert_bias",
    ".mlp.expert_bias_vl",
    ".ffn.gate.bias",
    ".ffn.gate.bias_vl",
)
FORCE_F16 = (
    "linear_attn.in_proj_a.weight",
    "linear_attn.in_proj_b.weight",
    "kda_attn.f_a_proj.weight",
    "kda_attn.f_b_proj.weight",
    "kda_attn.b_proj.weight",
    "kda_attn.g_a_proj.weight",
    "kda_attn.g_b_proj.weight",
    "_conv1d.weight",
    "altup.correction_coefs.weight",
    "altup.prediction_coefs.weight",
    "altup.modality_router.weight",
    "laurel.linear_left.weight",
    "laurel.linear_right.weight",
    "per_layer_input_gate.weight",
    ".per_layer_projection.weight",
    "mlp.gate.weight",
    "shared_expert_gate.weight",
    "self_attn.g_proj.weight",
    ".engram.q_weight",
    ".engram.k_weight",
)
FORCE_F16_PREFIXES = ("vis.", "speech_embeddings.")
HYPER_PARTS = ("input_mix_weight_", "block_inject_weight")
LEAST_ELEMENTS = 32

VOCABULARY = ("model.embed_tokens.weight", "lm_head.weight")
EXPERTS = (".experts.", ".shared_expert.", ".shared_experts.")
GATE_UP = (".gate_proj.weight", ".up_proj.weight", ".w1.weight", ".w3.weight")
NOT_DENSE = (".experts.", ".shared_expert", ".mtp.")


@dataclass(frozen=True)
class Profile:
    """One of the converter's `--quant` names, and what it means for a plain matrix."""

    names: tuple[str, ...]
    codec: str


PROFILES = (
    Profile(("q8", "q8_row", "q8row"), "q8_row"),
    Profile(("q8_2f", "q82f", "q8f"), "q8_2f"),
    Profile(("q4", "q4_block", "q4block"), "q4_block"),
    Profile(("f16", "fp16"), "f16"),
    Profile(("vbit", "v_bit"), "vbit_ro"),
    Profile(("q4t", "q4_tiled"), "q4_tiled"),
    Profile(("q4tp", "q4t_pred"), "q4tp"),
    Profile(("q2tp", "q2t_pred"), "q2tp"),
    Profile(("q1",), "q1"),
    Profile(("q1p", "q1_ptq"), "q1p"),
    Profile(("q1s", "q1_mask"), "q1s"),
    Profile(("q1t", "q1_ternary"), "q1t"),
)
REFUSED_PROFILES = ("q2tp_affine", "q2tp-affine", "q2t_affine")


@dataclass(frozen=True)
class Request:
    """A codec's word, understood. Without a codec: keep."""

    word: str
    codec: str | None
    is_profile: bool = False


def parse_request(word: str) -> Request:
    """What `word` asks for; UnknownCodec lists what there is, profiles in any case."""
    if word == KEEP:
        return Request(word, None)
    if not word.startswith(PROFILE):
        return Request(word, _codec_word(word))
    name = word.removeprefix(PROFILE).lower()
    if name in REFUSED_PROFILES:
        raise UnsupportedFeature(
            f"codec {word!r} stores rotated weights, which can't be made here; "
            f"{PROFILE}q2tp has the same size"
        )
    for profile in PROFILES:
        if name in profile.names:
            return Request(word, profile.codec, is_profile=True)
    names = ", ".join(name for profile in PROFILES for name in profile.names)
    raise UnknownCodec(f"no codec {word!r}; the profiles are {names}")


def stored_codec(name: str, shape: Shape, request: Request, arch: Arch) -> str:
    """The codec for a tensor: the one asked for, for the matrices it is meant for.

    Norms, routers and the like become f16, or f32 where that was asked for or is needed;
    with `keep` all that has no dtype yet becomes f16.
    """
    if name.endswith(FORCE_F32):
        return "f32"
    codec = request.codec or "f16"
    if codec in FLOATS and not request.is_profile:
        return codec
    if _is_forced_f16(name) or len(shape) != 2 or element_count(shape) < LEAST_ELEMENTS:
        return "f16"
    if arch.deepseek_v41 is not None and _is_deepseek_vision(name):
        return "f16"
    if request.is_profile and codec in {"q4tp", "q2tp"}:
        codec = _two_plane(name, codec, arch)
    is_grouped = shape[1] % GROUP == 0
    return codec if is_grouped or not isinstance(CODECS[codec], TiledCodec) else UNGROUPED


def _codec_word(word: str) -> str:
    try:
        return codec_named(word).name
    except UnknownCodec:
        of_profile = any(word.lower() in profile.names for profile in PROFILES)
        hint = f"; the converter's {word} is {PROFILE}{word}" if of_profile else ""
        raise UnknownCodec(
            f"no codec {word!r}; there are {KEEP}, {', '.join(CODECS)}, and {PROFILE}NAME"
            f"{hint}"
        ) from None


def _two_plane(name: str, codec: str, arch: Arch) -> str:
    """What the profiles q4tp and q2tp mean: only MLP gates and ups become q2tp."""
    if codec == "q2tp" and not _is_gate_or_up(name, arch):
        codec = "q4tp"
    family = arch.arch_name.lower().replace("-", "_")
    if family.startswith("granite"):
        return UNGROUPED if name in VOCABULARY else codec
    if family.startswith("mimo_v2"):
        return codec if ".mlp.experts." in name else UNGROUPED
    if arch.qwen4_exp is not None and _is_sensitive_in_qwen4(name):
        return UNGROUPED
    return codec


def _is_gate_or_up(name: str, arch: Arch) -> bool:
    if any(part in name for part in EXPERTS):
        return name.endswith(GATE_UP)
    is_dense = not any(part in name for part in NOT_DENSE)
    dense_ends = tuple(".mlp" + end for end in GATE_UP)
    return arch.moe is None and is_dense and name.endswith(dense_ends)


def _is_sensitive_in_qwen4(name: str) -> bool:
    if ".ple." in name and name.endswith(("key_proj.weight", "value_proj.weight")):
        return True
    return name in VOCABULARY or ".linear_attn." in name or ".self_attn." in name


def _is_deepseek_vision(name: str) -> bool:
    return name.startswith(("vision.", "aligner.")) and name.endswith(".weight")


def _is_forced_f16(name: str) -> bool:
    if name.endswith(FORCE_F16) or name.startswith(FORCE_F16_PREFIXES):
        return True
    return "hyper_connection" in name and any(part in name for part in HYPER_PARTS)
