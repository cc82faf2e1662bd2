"""What a codec's word means, tensor by tensor: hand-worked from the converter's rules."""

from pathlib import Path

import pytest

from cmfio.arch import Arch, Moe
from cmfio.codecs.registry import CODECS
from cmfio.errors import UnknownCodec, UnsupportedFeature
from cmfio.policy import PROFILES, parse_request, stored_codec
from cmfio.reader import open_container

PEERS = Path(__file__).parents[1] / "peers" / "cmf"
with open_container(PEERS / "align.cmf") as container:
    DENSE: Arch = container.header.arch
MIXED = DENSE.model_copy(
    update={"moe": Moe(num_experts=4, top_k=2, moe_intermediate_size=32)}
)
UP = "model.layers.0.mlp.up_proj.weight"
DOWN = "model.layers.0.mlp.down_proj.weight"
DRAFT_UP = "model.mtp.layers.0.mlp.up_proj.weight"
EXPERT_UP = "model.layers.0.mlp.experts.3.up_proj.weight"
SHARED_GATE = "model.layers.0.mlp.shared_expert.gate_proj.weight"
EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def chosen(
    word: str, name: str, shape: tuple[int, ...] = (64, 64), arch: Arch = DENSE
) -> str:
    return stored_codec(name, shape, parse_request(word), arch)


@pytest.mark.parametrize(
    ("names", "codec", "ungrouped"),
    [
        ("q8 q8_row q8row", "q8_row", "q8_row"),
        ("q8_2f q82f q8f", "q8_2f", "q8_2f"),
        ("q4 q4_block q4block", "q4_block", "q4_block"),
        ("f16 fp16", "f16", "f16"),
        ("vbit v_bit", "vbit_ro", "q8_2f"),
        ("q4t q4_tiled", "q4_tiled", "q8_2f"),
        ("q4tp q4t_pred", "q4tp", "q8_2f"),
        ("q2tp q2t_pred", "q2tp", "q8_2f"),
        ("q1", "q1", "q8_2f"),
        ("q1p q1_ptq", "q1p", "q8_2f"),
        ("q1s q1_mask", "q1s", "q8_2f"),
        ("q1t q1_ternary", "q1t", "q8_2f"),
    ],
)
def test_a_profile_by_all_its_names(names: str, codec: str, ungrouped: str) -> None:
    for name in names.split():
        for word in (f"profile:{name}", f"profile:{name.upper()}"):
            assert chosen(word, UP) == codec
            assert chosen(word, UP, (64, 40)) == ungrouped


def test_all_profiles_write_a_codec_there_is() -> None:
    assert {profile.codec for profile in PROFILES} <= set(CODECS)
    names = [name for profile in PROFILES for name in profile.names]
    assert len(names) == len(set(names)) == 26


def test_a_dtypes_name_means_that_dtype_also_where_a_profile_means_another() -> None:
    assert chosen("vbit", UP) == "vbit"
    assert chosen("q2tp", DRAFT_UP) == "q2tp"
    assert chosen("q2tp", HEAD) == "q2tp"
    assert chosen("q4_tiled", UP, (64, 40)) == "q8_2f"
    assert chosen("q1t_overlay", UP) == "q1t_overlay"


@pytest.mark.parametrize("codec", ["f32", "bf16", "f16"])
def test_a_float_dtype_is_for_every_tensor(codec: str) -> None:
    for name, shape in (
        (UP, (64, 64)),
        (UP, (4,)),
        ("model.layers.0.mlp.gate.weight", (8, 64)),
    ):
        assert chosen(codec, name, shape) == codec
    assert chosen(codec, "x.mlp.expert_bias", (64,)) == "f32"


@pytest.mark.parametrize(
    ("name", "shape", "codec"),
    [
        ("x.tid2eid", (64, 64), "f32"),
        ("x.self_attn.sinks", (64,), "f32"),
        ("x.ffn.gate.bias_vl", (64,), "f32"),
        ("model.norm.weight", (64,), "f16"),
        ("x.experts.w", (4, 64, 64), "f16"),
        ("x.tiny.weight", (1, 31), "f16"),
        ("x.least.weight", (1, 32), "q4tp"),
        ("model.layers.0.mlp.gate.weight", (64, 64), "f16"),
        ("model.layers.0.linear_attn.in_proj_b.weight", (64, 64), "f16"),
        ("model.layers.0.self_attn.q_conv1d.weight", (64, 64), "f16"),
        ("speech_embeddings.0.weight", (64, 64), "f16"),
        ("vis.blocks.0.weight", (64, 64), "f16"),
        ("x.engram.k_weight", (64, 64), "f16"),
        ("x.hyper_connection.input_mix_weight_0", (64, 64), "f16"),
        ("x.hyper_connection.other", (64, 64), "q4tp"),
    ],
)
def test_what_stays_float_under_a_profile(
    name: str, shape: tuple[int, ...], codec: str
) -> None:
    assert chosen("profile:q4tp", name, shape) == codec


@pytest.mark.parametrize(
    ("name", "dense", "mixed"),
    [
        (UP, "q2tp", "q4tp"),
        ("model.layers.0.mlp.w1.weight", "q2tp", "q4tp"),
        (DOWN, "q4tp", "q4tp"),
        (DRAFT_UP, "q4tp", "q4tp"),
        (EXPERT_UP, "q2tp", "q2tp"),
        (SHARED_GATE, "q2tp", "q2tp"),
        ("model.mtp.layers.0.mlp.experts.0.gate_proj.weight", "q2tp", "q2tp"),
        ("model.layers.0.mlp.experts.3.down_proj.weight", "q4tp", "q4tp"),
        (EMBED, "q4tp", "q4tp"),
        ("model.layers.0.self_attn.gate_proj.weight", "q4tp", "q4tp"),
    ],
)
def test_the_profile_q2tp_is_for_gates_and_ups(name: str, dense: str, mixed: str) -> None:
    assert chosen("profile:q2tp", name) == dense
    assert chosen("profile:q2tp", name, arch=MIXED) == mixed


def test_families_whose_sensitive_matrices_stay_at_8_bits() -> None:
    granite = DENSE.model_copy(update={"arch_name": "granite"})
    mimo = MIXED.model_copy(update={"arch_name": "MiMo-V2"})
    qwen4 = DENSE.model_copy(update={"qwen4_exp": object()})
    vision = DENSE.model_copy(update={"deepseek_v41": {}})
    expected = [
        (granite, EMBED, "q8_2f"),
        (granite, UP, "q2tp"),
        (mimo, EXPERT_UP, "q2tp"),
        (mimo, UP, "q8_2f"),
        (qwen4, HEAD, "q8_2f"),
        (qwen4, "model.layers.0.self_attn.q_proj.weight", "q8_2f"),
        (qwen4, "model.layers.0.ple.key_proj.weight", "q8_2f"),
        (qwen4, "model.layers.0.ple.conv.weight", "q4tp"),
        (vision, "vision.blocks.0.weight", "f16"),
        (vision, UP, "q2tp"),
    ]
    for arch, name, codec in expected:
        assert chosen("profile:q2tp", name, arch=arch) == codec, (arch.arch_name, name)
    # Other profiles, and dtypes by name, don't know these families.
    assert chosen("profile:q4t", EMBED, arch=granite) == "q4_tiled"
    assert chosen("q4tp", EMBED, arch=granite) == "q4tp"


def test_keep_stores_new_tensors_as_halves() -> None:
    assert chosen("keep", UP) == "f16"
    assert chosen("keep", "x.mlp.expert_bias", (64,)) == "f32"


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("q9", r"'q9'; there are keep, f32, .* and profile:NAME$"),
        ("q8", "the converter's q8 is profile:q8$"),
        ("Q8_ROW", "the converter's Q8_ROW is profile:Q8_ROW$"),
        ("u8", "no codec 'u8'"),
        ("profile:q9", "the profiles are q8, q8_row, q8row, q8_2f"),
    ],
)
def test_unknown_words_name_what_there_is(word: str, text: str) -> None:
    with pytest.raises(UnknownCodec, match=text):
        parse_request(word)


def test_the_rotated_profile_is_refused_with_its_reason() -> None:
    with pytest.raises(UnsupportedFeature, match=r"rotated weights.*profile:q2tp"):
        parse_request("profile:Q2TP-affine")
