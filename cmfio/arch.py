"""The header's `arch`: what the model is, every field of the format typed."""

from typing import ClassVar, Literal

from cmfio.record import Bool, Int, Real, Record, Text

LayerType = Literal[
    "FullAttention",
    "SlidingAttention",
    "LinearAttention",
    "ShortConv",
    "Kda",
    "BoundedAttention",
]


class Yarn(Record):
    """Rotary scaling by YaRN."""

    factor: Real
    original_max_position_embeddings: Int
    beta_fast: Real = 32.0
    beta_slow: Real = 1.0
    attention_factor: Real = 1.0
    mscale_all_dim: Real | None = None


class Mla(Record):
    """Multi-head latent attention."""

    DEFAULT_OMITTED = frozenset({"nope"})

    kv_lora_rank: Int
    qk_rope_head_dim: Int
    qk_nope_head_dim: Int
    v_head_dim: Int
    q_lora_rank: Int | None = None
    nope: Bool = False


class Mtp(Record):
    """The model's own draft: its blocks, and what it shares with the trunk."""

    num_layers: Int
    share_lm_head: Bool = True
    share_embed: Bool = True


class Moe(Record):
    """Mixture of experts."""

    DEFAULT_OMITTED = frozenset({"router_sigmoid", "router_resonance"})

    num_experts: Int
    top_k: Int
    moe_intermediate_size: Int
    norm_topk_prob: Bool = False
    shared_expert_intermediate_size: Int | None = None
    router_sigmoid: Bool = False
    routed_scaling_factor: Real | None = None
    router_resonance: Bool = False


class Qwen4Exp(Record):
    """The experimental Qwen4 layout."""

    hc_count: Int
    hc_lowrank: Int
    indexer_n_heads: Int
    indexer_kv_heads: Int
    indexer_head_dim: Int
    indexer_budget: Int
    indexer_compress_ratio: Int
    ple_layer_ids: tuple[Int, ...]
    ple_embed_dim: Int
    ple_conv_kernel_size: Int
    ngram_size: Int
    heads_per_ngram: Int
    ngram_vocab_size_base: Int
    make_ngram_vocab_size_divisible_by: Int
    split_ngram_parts: Int
    seed: Int


class LinearCore(Record):
    """Which linear attention the LinearAttention layers are."""

    kind: Text
    num_heads: Int | None = None
    nphase: Int | None = None
    value_head_dim: Int | None = None
    phase_delta_layers: tuple[Int, ...] | None = None


class AnchorCore(Record):
    """Bounded attention: a window and a sink."""

    DEFAULT_OMITTED = frozenset({"train_windows"})

    kind: Text
    window: Int
    sink: Int
    rope: Text
    sink_scores: Text
    train_windows: tuple[Int, ...] = ()
    far: object | None = None


class G3n(Record):
    """Gemma 3n's extra streams."""

    altup_num_inputs: Int
    laurel_rank: Int
    ple_dim: Int
    ple_vocab: Int
    num_kv_shared_layers: Int
    activation_sparsity: tuple[Real, ...]


class PrismAffine(Record):
    """The q2tp_affine profile of some rotated matrices."""

    version: Int
    profile: Text
    group_size: Int
    correction_scale: Real
    target_names: tuple[Text, ...]


class PrismHadamard(Record):
    """Matrices stored in a rotated input basis; carried, never applied."""

    version: Int
    block_size: Int
    transform: Text
    axis: Text
    sign_mode: Text
    widths: tuple[Int, ...]
    signs: tuple[Real, ...]
    forward_weight_names: tuple[Text, ...]
    inverse_weight_names: tuple[Text, ...]
    gdn_v_grouped: Bool
    activation_f16: Bool
    affine: PrismAffine | None = None


class Arch(Record):
    """Everything the file says of the model's shape. Unknown keys are kept."""

    NULL_WRITTEN: ClassVar[frozenset[str]] = frozenset(
        {"linear_conv_kernel_dim", "linear_num_key_heads", "linear_num_value_heads"}
    )
    DEFAULT_OMITTED: ClassVar[frozenset[str]] = frozenset(
        {
            "hidden_act",
            "embed_multiplier",
            "attn_v_norm",
            "qk_norm_after_rope",
            "num_loops",
            "loop_final_norm",
        }
    )

    arch_name: Text
    hidden_size: Int
    intermediate_size: Int
    num_layers: Int
    num_attention_heads: Int
    num_kv_heads: Int
    head_dim: Int
    vocab_size: Int
    layer_types: tuple[LayerType, ...]
    rms_norm_eps: Real
    norm_style: Literal["qwen", "gemma"] = "qwen"
    rope_theta: Real = 10000.0
    tie_word_embeddings: Bool = False
    partial_rotary_factor: Real = 1.0
    yarn: Yarn | None = None
    attention_heads_per_layer: tuple[Int, ...] | None = None
    kv_heads_per_layer: tuple[Int, ...] | None = None
    v_head_dim: Int | None = None
    hidden_act: Text = "silu"
    embed_multiplier: Real = 1.0
    query_pre_attn_scalar: Real | None = None
    sliding_window: Int | None = None
    sliding_window_pattern: Int | None = None
    rope_local_base_freq: Real | None = None
    local_partial_rotary_factor: Real | None = None
    global_head_dim: Int | None = None
    num_global_kv_heads: Int | None = None
    global_partial_rotary_factor: Real | None = None
    final_logit_softcapping: Real | None = None
    mla: Mla | None = None
    activation_situ_beta: Real | None = None
    activation_situ_linear_beta: Real | None = None
    attn_logit_softcapping: Real | None = None
    attn_v_norm: Bool = False
    qk_norm_after_rope: Bool = False
    mtp: Mtp | None = None
    moe: Moe | None = None
    qwen4_exp: Qwen4Exp | None = None
    deepseek_v41: object | None = None
    linear_core: LinearCore | None = None
    anchor_core: AnchorCore | None = None
    head_clusters: Int | None = None
    max_position_embeddings: Int
    linear_conv_kernel_dim: Int | None = None
    linear_num_key_heads: Int | None = None
    linear_num_value_heads: Int | None = None
    linear_key_head_dim: Int | None = None
    linear_value_head_dim: Int | None = None
    rope_freq_factors: tuple[Real, ...] | None = None
    logit_multiplier: Real | None = None
    g3n: G3n | None = None
    kda_gate_lower_bound: Real | None = None
    num_loops: Int = 1
    loop_final_norm: Bool = False
    prism_hadamard: PrismHadamard | None = None
    no_rope_layers: object | None = None
