"""Tensors of a decoder layer as checkpoints name them, by the part they make up."""

from collections.abc import Sequence

Names = Sequence[str]

QK_NORMS: Names = ("self_attn.q_norm.weight", "self_attn.k_norm.weight")
QKV_BIASES: Names = (
    "self_attn.q_proj.bias",
    "self_attn.k_proj.bias",
    "self_attn.v_proj.bias",
)
ATTENTION: Names = (
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
)
DELTA_CORE: Names = (
    "linear_attn.conv1d.weight",
    "linear_attn.dt_bias",
    "linear_attn.A_log",
    "linear_attn.norm.weight",
    "linear_attn.out_proj.weight",
)
DELTA_NET: Names = (
    "linear_attn.in_proj_qkv.weight",
    "linear_attn.in_proj_z.weight",
    "linear_attn.in_proj_b.weight",
    "linear_attn.in_proj_a.weight",
    *DELTA_CORE,
)
DELTA_NET_FUSED: Names = (
    "linear_attn.in_proj_qkvz.weight",
    "linear_attn.in_proj_ba.weight",
    *DELTA_CORE,
)
SHARED_EXPERT: Names = (
    "mlp.shared_expert.gate_proj.weight",
    "mlp.shared_expert.up_proj.weight",
    "mlp.shared_expert.down_proj.weight",
)
SHARED_GATE = "mlp.shared_expert_gate.weight"
ROUTER_BIAS = "mlp.gate.e_score_correction_bias"
