"""Which models are taken, and that every refusal names the tensor or field."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from nets.families import find_family
from nets.geometry import trunk_geometry
from tests.builders import (
    TinyModel,
    TinySpec,
    tiny_ernie,
    tiny_glm,
    tiny_llama,
    tiny_mimo,
    tiny_mistral,
    tiny_qwen2,
    tiny_qwen3,
    tiny_qwen3_5,
    tiny_qwen3_5_moe,
    tiny_qwen3_moe,
    tiny_qwen3_next,
)
from tests.test_nets.refusals import refusal, with_shape, without

Build = Callable[[TinySpec], TinyModel]
MOE = {"num_experts": 5, "top_k": 2, "moe_intermediate_size": 16, "norm_topk_prob": True}


def with_arch(**fields: Any) -> TinyModel:  # Any: whatever a header may say
    return tiny_qwen3(TinySpec(arch=fields))


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
    assert "Llama, Mistral, Qwen2" in refusal(model)


@pytest.mark.parametrize(
    "name",
    ["llama4", "mistral3", "qwen2_moe", "qwen3_vl", "mimo_v2_flash", "glm4_moe_lite"],
)
def test_a_sibling_with_other_layers_is_not_taken_for_the_family(name: str) -> None:
    assert repr(name) in refusal(tiny_llama(TinySpec(arch={"arch_name": name})))


@pytest.mark.parametrize(
    ("tiny", "name", "title"),
    [
        (tiny_mistral, "MistralForCausalLM", "Mistral"),
        (tiny_qwen2, "qwen2.5", "Qwen2"),
        (tiny_mimo, "MiMo", "MiMo-7B"),
        (tiny_ernie, "Ernie4_5ForCausalLM", "Ernie-4.5"),
        (tiny_qwen3_moe, "qwen3_moe", "Qwen3-MoE"),
        (tiny_qwen3_5, "qwen3.5", "Qwen3.5"),
        (tiny_qwen3_5, "qwen3_next", "Qwen3.5"),
        (tiny_qwen3_5_moe, "qwen3_5_moe", "Qwen3.5-MoE"),
        (tiny_qwen3_5_moe, "qwen3_next", "Qwen3.5-MoE"),  # its .cmf has them unpacked
        (tiny_qwen3_next, "qwen3-next", "Qwen3-Next"),
        (tiny_glm, "Glm4MoeForCausalLM", "GLM-4.5"),
    ],
)
def test_names_and_tensors_find_the_row(tiny: Build, name: str, title: str) -> None:
    model = tiny(TinySpec(arch={"arch_name": name}))
    assert trunk_geometry(model.arch, model.shapes).family.title == title


def test_a_llama_that_names_itself_qwen3_is_refused() -> None:
    model = tiny_llama(TinySpec(arch={"arch_name": "qwen3"}))
    assert "'model.layers.0.self_attn.q_norm.weight' is missing" in refusal(model)


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
    text = refusal(with_shape(tiny_llama(), tensor, 4, 4))
    assert named in text
    assert tensor in text


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
        ({"layer_types": ("FullAttention", "Kda")}, "arch.layer_types[1]"),
        ({"linear_core": {"kind": "vmf_phase", "num_heads": 1}}, "arch.linear_core is"),
        ({"moe": MOE}, "arch.moe is"),
        ({"head_clusters": 4}, "arch.head_clusters is 4"),
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


@pytest.mark.parametrize(
    ("tiny", "fields", "named"),
    [
        (tiny_llama, {"sliding_window": 128}, "arch.sliding_window is 128"),
        (tiny_ernie, {"sliding_window": 128}, "arch.sliding_window is 128"),
        (tiny_ernie, {"partial_rotary_factor": 0.5}, "arch.partial_rotary_factor"),
        (tiny_mistral, {"partial_rotary_factor": 0.5}, "arch.partial_rotary_factor"),
        (tiny_qwen2, {"sliding_window": None}, "arch.sliding_window is None"),
        (tiny_qwen3_5, {"sliding_window": 128}, "arch.sliding_window is 128"),
        (tiny_qwen3_5, {"norm_style": "qwen"}, "arch.norm_style is 'qwen'"),
        (tiny_qwen3_5, {"linear_key_head_dim": None}, "arch.linear_key_head_dim is None"),
        (tiny_qwen3_5, {"linear_core": {"kind": "vmf_phase"}}, "arch.linear_core.kind"),
        (tiny_qwen3_5, {"moe": MOE}, "arch.moe is"),
        (tiny_qwen3_moe, {"moe": None}, "arch.moe is missing"),
        (
            tiny_qwen3_moe,
            {"moe": MOE | {"router_sigmoid": True}},
            "arch.moe.router_sigmoid",
        ),
        (
            tiny_qwen3_moe,
            {"moe": MOE | {"routed_scaling_factor": 2.5}},
            "arch.moe.routed_scaling_factor is 2.5",
        ),
        (
            tiny_qwen3_moe,
            {"moe": MOE | {"shared_expert_intermediate_size": 8}},
            "arch.moe.shared_expert_intermediate_size is 8",
        ),
        (
            tiny_qwen3_5_moe,
            {"moe": MOE | {"norm_topk_prob": False}},
            "arch.moe.norm_topk_prob is false",
        ),
        (tiny_glm, {"moe": MOE}, "arch.moe.router_sigmoid is False"),
        (
            tiny_glm,
            {"moe": MOE | {"router_sigmoid": True, "n_group": 4}},
            "arch.moe.n_group is 4",
        ),
        (
            tiny_glm,
            {"moe": MOE | {"router_sigmoid": True, "router_resonance": True}},
            "arch.moe.router_resonance is True",
        ),
    ],
)
def test_a_field_beyond_the_family_is_refused(
    tiny: Build, fields: Mapping[str, object], named: str
) -> None:
    kinds = {"layer_types": ("FullAttention", "SlidingAttention")}
    extra = kinds if tiny is tiny_qwen2 else {}
    assert named in refusal(tiny(TinySpec(arch={**extra, **fields})))


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
