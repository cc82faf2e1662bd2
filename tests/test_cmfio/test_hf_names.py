"""Checkpoint names against the peer's own renaming."""

import json
from pathlib import Path

import pytest

from cmfio.hf_names import canonical_name

NAMES = Path(__file__).parents[1] / "peers" / "cmf" / "names.json"
VECTORS = json.loads(NAMES.read_text("utf-8"))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["raw"])
def test_names_are_the_peers(vector: dict[str, str | None]) -> None:
    raw = vector["raw"]
    assert raw is not None
    assert canonical_name(raw) == vector["canonical"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # The peer's rules that its list has no example of.
        ("model.audio_tower.layers.0.fc1.weight", None),
        ("model.language_model.visual.x", None),
        ("layers.3.ffn.gate.bias_vl", "model.layers.3.mlp.expert_bias_vl"),
        (
            "layers.3.ffn.shared_experts.w2.weight",
            "model.layers.3.mlp.shared_expert.down_proj.weight",
        ),
        (
            "model.layers.1.block_sparse_moe.shared_experts.up_proj.weight",
            "model.layers.1.mlp.shared_expert.up_proj.weight",
        ),
        (
            "model.layers.2.ffn_norm.weight",
            "model.layers.2.post_attention_layernorm.weight",
        ),
        (
            "model.layers.2.self_attn.out_proj.weight",
            "model.layers.2.self_attn.o_proj.weight",
        ),
        (
            "model.layers.2.self_attn.q_layernorm.weight",
            "model.layers.2.self_attn.q_norm.weight",
        ),
        (
            "model.layers.2.self_attn.key_layernorm.weight",
            "model.layers.2.self_attn.k_norm.weight",
        ),
    ],
)
def test_rules_without_a_vector(source: str, expected: str | None) -> None:
    assert canonical_name(source) == expected
