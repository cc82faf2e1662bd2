"""Which models are taken, and that every refusal names the tensor or field."""

import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from nets.errors import ModelError
from nets.families import find_family
from nets.geometry import LayerGeometry, draft_geometry, trunk_geometry
from tests.builders import HIDDEN, TinyModel, TinySpec, model_of, tiny_llama, tiny_qwen3


def without(model: TinyModel, name: str) -> TinyModel:
    tensors = model.tensors
    del tensors[name]
    return model_of(model.arch, tensors)


def with_shape(model: TinyModel, name: str, *shape: int) -> TinyModel:
    return model_of(model.arch, model.tensors | {name: torch.zeros(*shape)})


def with_arch(**fields: Any) -> TinyModel:  # Any: whatever a header may say
    return tiny_qwen3(TinySpec(arch=fields))


def refusal(model: TinyModel) -> str:
    with pytest.raises(ModelError) as caught:
        trunk_geometry(model.arch, model.shapes)
    return str(caught.value)


@pytest.mark.parametrize("arch_name", ["qwen3", "Qwen3", "Qwen3ForCausalLM", "qwen-3"])
def test_qwen3_is_known_by_its_head_norms_under_any_spelling(arch_name: str) -> None:
    model = with_arch(arch_name=arch_name)
    assert find_family(model.arch, model.shapes).title == "Qwen3"


def test_llama_is_what_has_no_mark() -> None:
    model = tiny_llama()
    assert find_family(model.arch, model.shapes).title == "Llama"


def test_a_name_of_another_family_is_refused() -> None:
    model = tiny_llama(TinySpec(arch={"arch_name": "cohere"}))
    assert "'cohere'" in refusal(model)
    assert "Qwen3, Llama" in refusal(model)


def test_a_llama_that_names_itself_qwen3_is_refused() -> None:
    model = tiny_llama(TinySpec(arch={"arch_name": "qwen3"}))
    assert "'qwen3'" in refusal(model)


@pytest.mark.parametrize(
    ("tensor", "named"),
    [
        ("model.layers.0.linear_attn.in_proj_qkv.weight", "gated delta net"),
        ("model.layers.0.mlp.gate.weight", "mixture of experts"),
        ("model.layers.1.mlp.experts.0.up_proj.weight", "mixture of experts"),
        ("model.layers.0.self_attn.q_proj.bias", "Qwen2"),
        ("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", "multi-head latent"),
        ("model.mtp.layers.0.mlp.experts.3.up_proj.weight", "mixture of experts"),
    ],
)
def test_known_foreign_tensors_are_named(tensor: str, named: str) -> None:
    text = refusal(with_shape(tiny_qwen3(), tensor, 4, 4))
    assert named in text
    assert tensor in text


def test_an_unknown_extra_tensor_is_refused() -> None:
    text = refusal(with_shape(tiny_qwen3(), "model.layers.0.self_attn.o_proj.bias", HIDDEN))
    assert "'model.layers.0.self_attn.o_proj.bias'" in text


def test_a_layer_beyond_the_header_is_refused() -> None:
    model = tiny_qwen3(TinySpec(arch={"num_layers": 1, "layer_types": ("FullAttention",)}))
    assert "'model.layers.1." in refusal(model)


def test_a_missing_tensor_is_refused() -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    assert f"{name!r} is missing" in refusal(without(tiny_llama(), name))


def test_skills_and_draft_are_no_part_of_the_trunk() -> None:
    model = with_shape(tiny_qwen3(), "skill.gfx.model.layers.0.mlp.up_proj.weight", 4, 4)
    assert len(trunk_geometry(model.arch, model.shapes).layers) == 2


def test_a_head_is_missing_only_if_the_header_says_it_is_not_tied() -> None:
    assert trunk_geometry(*tiny_qwen3()[:2]).is_tied
    assert "'lm_head.weight' is missing" in refusal(without(tiny_llama(), "lm_head.weight"))


def test_a_head_that_is_there_is_used_whatever_the_header_says() -> None:
    model = tiny_llama()
    arch = model.arch.model_copy(update={"tie_word_embeddings": True})
    assert not trunk_geometry(arch, model.shapes).is_tied


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"norm_style": "gemma"}, "arch.norm_style is 'gemma'"),
        ({"partial_rotary_factor": 0.25}, "arch.partial_rotary_factor is 0.25"),
        ({"rope_freq_factors": (1.0, 2.0)}, "arch.rope_freq_factors"),
        ({"rope_local_base_freq": 1e4}, "arch.rope_local_base_freq"),
        ({"rope_scaling": {"type": "linear"}}, "arch.rope_scaling"),
        ({"sliding_window": 128}, "arch.sliding_window is 128"),
        ({"query_pre_attn_scalar": 256.0}, "arch.query_pre_attn_scalar"),
        ({"embed_multiplier": 12.0}, "arch.embed_multiplier"),
        ({"final_logit_softcapping": 30.0}, "arch.final_logit_softcapping"),
        ({"qk_norm_after_rope": True}, "arch.qk_norm_after_rope"),
        ({"num_loops": 2}, "arch.num_loops"),
        ({"no_rope_layers": [1, 0]}, "arch.no_rope_layers"),
        ({"hidden_act": "relu2"}, "arch.hidden_act is 'relu2'"),
        ({"layer_types": ("FullAttention", "SlidingAttention")}, "arch.layer_types[1]"),
        ({"layer_types": ("FullAttention",)}, "arch.layer_types has 1 entries for 2"),
    ],
)
def test_a_field_the_class_would_ignore_is_refused(
    fields: Mapping[str, object], named: str
) -> None:
    assert named in refusal(with_arch(**fields))


def test_an_unknown_yarn_field_is_refused() -> None:
    yarn = {"factor": 4.0, "original_max_position_embeddings": 64}
    assert trunk_geometry(*with_arch(yarn=yarn)[:2])
    assert "arch.yarn.mscale_all_dim is 0.7" in refusal(
        with_arch(yarn={**yarn, "mscale_all_dim": 0.7})
    )
    assert "arch.yarn.truncate is 1" in refusal(with_arch(yarn={**yarn, "truncate": 1}))


def test_neutral_values_pass() -> None:
    model = with_arch(
        v_head_dim=8,
        query_pre_attn_scalar=8.0,
        rope_freq_factors=(1.0, 1.0),
        logit_multiplier=1.0,
        linear_key_head_dim=128,
        no_rope_layers=None,
        some_new_flag=False,
    )
    assert trunk_geometry(model.arch, model.shapes)


def test_every_layer_has_its_own_widths() -> None:
    model = tiny_qwen3(
        TinySpec(layers=[(4, 2, 48), (2, 1, 17), (3, 3, 5)], draft=(2, 2, 9))
    )
    trunk = trunk_geometry(model.arch, model.shapes)
    assert list(trunk.layers) == [
        LayerGeometry(4, 2, 48),
        LayerGeometry(2, 1, 17),
        LayerGeometry(3, 3, 5),
    ]
    assert draft_geometry(trunk.family, model.arch, model.shapes) == LayerGeometry(2, 2, 9)


def test_per_layer_heads_in_the_header_must_be_the_tensors() -> None:
    layers = [(4, 2, 48), (2, 1, 48)]
    right = {"attention_heads_per_layer": (4, 2), "kv_heads_per_layer": (2, 1)}
    assert trunk_geometry(*tiny_qwen3(TinySpec(layers=layers, arch=right))[:2])
    wrong = tiny_qwen3(TinySpec(layers=layers, arch=right | {"kv_heads_per_layer": (2, 2)}))
    assert "arch.kv_heads_per_layer is [2, 2], the tensors have [2, 1]" in refusal(wrong)


@pytest.mark.parametrize(
    ("name", "shape", "named"),
    [
        ("self_attn.q_proj.weight", (64, 32), "output gate"),
        ("self_attn.o_proj.weight", (32, 30), "no multiple of arch.head_dim 8"),
        ("self_attn.k_proj.weight", (24, 32), "4 query heads for 3 key/value heads"),
        ("self_attn.v_proj.weight", (8, 32), "should be [16, 32]"),
        ("self_attn.k_proj.weight", (0, 32), "a filled matrix"),
        ("self_attn.q_norm.weight", (32,), "should be [8]"),
        ("mlp.down_proj.weight", (32, 47), "should be [32, 48]"),
        ("mlp.gate_proj.weight", (48,), "a filled matrix"),
    ],
)
def test_a_misshapen_tensor_is_named(name: str, shape: tuple[int, ...], named: str) -> None:
    text = refusal(with_shape(tiny_qwen3(), f"model.layers.1.{name}", *shape))
    assert named in text
    assert "layers.1." in text


def draft_refusal(model: TinyModel) -> str:
    family = find_family(model.arch, model.shapes)
    with pytest.raises(ModelError) as caught:
        draft_geometry(family, model.arch, model.shapes)
    return str(caught.value)


def test_a_model_is_checked_without_torch() -> None:
    code = "import sys, nets.geometry; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_model_without_a_draft_is_offered_two_ways_out() -> None:
    text = draft_refusal(tiny_llama(TinySpec(draft=None)))
    assert re.search("carries no draft.*`init`.*`start_from_last_layer: true`", text)


def test_a_draft_with_a_hole_is_offered_the_same() -> None:
    text = draft_refusal(without(tiny_llama(), "model.mtp.hnorm.weight"))
    assert re.search("lacks tensor 'model.mtp.hnorm.weight'.*`init`", text)


def test_a_head_of_the_drafts_own_is_refused() -> None:
    text = draft_refusal(with_shape(tiny_llama(), "model.mtp.lm_head.weight", 61, 32))
    assert "'model.mtp.lm_head.weight'" in text


def test_draft_blocks_beyond_the_first_are_left_alone() -> None:
    model = with_shape(tiny_llama(), "model.mtp.layers.1.anything.weight", 3)
    family = find_family(model.arch, model.shapes)
    assert draft_geometry(family, model.arch, model.shapes) == LayerGeometry(4, 2, 40)
