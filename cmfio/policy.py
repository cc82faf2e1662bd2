"""In which dtype the converter stores a tensor, by its name and shape (cmf.md §11.2)."""

from cmfio.dtypes import Shape, element_count

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


def stored_dtype(name: str, shape: Shape, codec: str) -> str:
    """`codec` for the matrices it is meant for; f32 or f16 for norms, routers and so on."""
    if name.endswith(FORCE_F32):
        return "f32"
    if len(shape) != 2 or element_count(shape) < LEAST_ELEMENTS or _is_forced_f16(name):
        return "f16"
    return codec


def _is_forced_f16(name: str) -> bool:
    if name.endswith(FORCE_F16) or name.startswith(FORCE_F16_PREFIXES):
        return True
    return "hyper_connection" in name and any(part in name for part in HYPER_PARTS)
