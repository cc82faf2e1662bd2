"""The widths of every layer and of a draft, and what of a directory is refused."""

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from nets.errors import ModelError
from nets.families import find_family
from nets.geometry import draft_geometry, trunk_geometry
from nets.layer_geometry import LayerGeometry
from tests.builders import (
    HIDDEN,
    TinyModel,
    TinySpec,
    model_of,
    tiny_ernie,
    tiny_glm,
    tiny_llama,
    tiny_mistral,
    tiny_qwen2,
    tiny_qwen3,
    tiny_qwen3_5,
    tiny_qwen3_5_moe,
    tiny_qwen3_moe,
)
from tests.test_nets.refusals import refusal, with_shape, without

Build = Callable[[TinySpec], TinyModel]


def test_an_unknown_extra_tensor_is_refused() -> None:
    text = refusal(with_shape(tiny_qwen3(), "model.layers.0.self_attn.o_proj.bias", HIDDEN))
    assert "'model.layers.0.self_attn.o_proj.bias'" in text


def test_a_layer_beyond_the_header_is_refused() -> None:
    model = tiny_qwen3(TinySpec(arch={"num_layers": 1, "layer_types": ("FullAttention",)}))
    assert "'model.layers.1." in refusal(model)


def test_a_missing_tensor_is_refused() -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    assert f"{name!r} is missing" in refusal(without(tiny_llama(), name))


def test_a_qwen2_may_name_a_window_that_no_layer_has() -> None:
    kinds = {"layer_types": ("FullAttention",) * 2, "sliding_window": 4}
    model = tiny_qwen2(TinySpec(arch=kinds))
    layers = trunk_geometry(model.arch, model.shapes).layers
    assert [layer.kind for layer in layers] == ["FullAttention"] * 2


def test_a_mistral_s_window_is_every_layer_s_unless_layers_are_named() -> None:
    model = tiny_mistral()
    layers = trunk_geometry(model.arch, model.shapes).layers
    assert [layer.kind for layer in layers] == ["SlidingAttention"] * 2
    mixed = {"layer_types": ("FullAttention", "SlidingAttention")}
    model = tiny_mistral(TinySpec(arch=mixed))
    layers = trunk_geometry(model.arch, model.shapes).layers
    assert [layer.kind for layer in layers] == ["FullAttention", "SlidingAttention"]


@pytest.mark.parametrize(
    ("kinds", "tensor"),
    [
        (("FullAttention",) * 2, "layers.0.linear_attn.out_proj"),
        (("LinearAttention",) * 2, "layers.1.self_attn.o_proj"),
    ],
)
def test_layer_types_must_be_the_tensors(kinds: tuple[str, ...], tensor: str) -> None:
    model = tiny_qwen3_5()
    arch = model.arch.model_copy(update={"layer_types": kinds})
    text = refusal(model._replace(arch=arch))
    assert tensor in text
    assert "arch.layer_types and the tensors must agree" in text


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
    draft = draft_geometry(trunk.family, model.arch, model.shapes)
    assert draft.layer == LayerGeometry(2, 2, 9)


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


DELTA, EXPERTS = "model.layers.0.linear_attn.", "model.layers.1.mlp."


@pytest.mark.parametrize(
    ("tiny", "name", "shape", "named"),
    [
        (tiny_qwen3_5, DELTA + "A_log", (3,), "no multiple of twice"),
        (tiny_qwen3_5, DELTA + "in_proj_z.weight", (30, 32), "should be [40, 32]"),
        (tiny_qwen3_5, DELTA + "conv1d.weight", (64, 2, 4), "should be [64, 1, 4]"),
        (tiny_qwen3_5, DELTA + "norm.weight", (8,), "should be [10]"),
        (tiny_qwen3_5, DELTA + "dt_bias", (5,), "should be [4]"),
        (
            tiny_qwen3_5,
            "model.layers.1.self_attn.q_proj.weight",
            (32, 32),
            "an output gate there too",
        ),
        (tiny_qwen3_moe, EXPERTS + "gate.weight", (4, 32), "routes to 4 experts"),
        (tiny_qwen3_moe, EXPERTS + "experts.2.up_proj.weight", (8, 32), "be [16, 32]"),
        (tiny_qwen3_moe, EXPERTS + "shared_expert.up_proj.weight", (8, 32), "no part of"),
        (tiny_glm, EXPERTS + "expert_bias", (4,), "should be [5]"),
        (tiny_glm, EXPERTS + "gate.weight", (1, 32), "compares the best two"),
        (tiny_qwen3_5_moe, EXPERTS + "shared_expert_gate.weight", (2, 32), "be [1, 32]"),
    ],
)
def test_a_misshapen_tensor_of_a_family_is_named(
    tiny: Build, name: str, shape: tuple[int, ...], named: str
) -> None:
    text = refusal(with_shape(tiny(TinySpec()), name, *shape))
    assert named in text
    assert name.rsplit(".", 2)[0] in text


@pytest.mark.parametrize(
    ("tiny", "name"),
    [
        (tiny_qwen2, "model.layers.1.self_attn.k_proj.bias"),
        (tiny_qwen3_5, DELTA + "dt_bias"),
        (tiny_qwen3_5_moe, EXPERTS + "shared_expert_gate.weight"),
        (tiny_qwen3_moe, EXPERTS + "experts.3.down_proj.weight"),
        (tiny_glm, "model.layers.1.self_attn.v_proj.bias"),
    ],
)
def test_a_missing_tensor_of_a_family_is_named(tiny: Build, name: str) -> None:
    assert f"{name!r} is missing" in refusal(without(tiny(TinySpec()), name))


def test_a_glm_s_biases_and_head_norms_are_as_its_tensors_say() -> None:
    model = tiny_glm()
    kept = {
        n: t for n, t in model.tensors.items() if not n.endswith((".bias", "_norm.weight"))
    }
    kept["model.norm.weight"] = model.read("model.norm.weight")
    bare = trunk_geometry(model.arch, model_of(model.arch, kept).shapes)
    assert [layer.options for layer in bare.layers] == [frozenset()] * 2
    full = trunk_geometry(model.arch, model.shapes)
    assert full.layers[0].options == {"attention_bias", "use_qk_norm"}


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


def test_only_a_family_that_says_so_has_drafts_without_a_norm() -> None:
    model = tiny_ernie()
    family = find_family(model.arch, model.shapes)
    assert not draft_geometry(family, model.arch, model.shapes).has_norm
    text = draft_refusal(without(tiny_llama(), "model.mtp.norm.weight"))
    assert "lacks tensor 'model.mtp.norm.weight'" in text


def test_a_head_of_the_drafts_own_is_refused() -> None:
    text = draft_refusal(with_shape(tiny_llama(), "model.mtp.lm_head.weight", 61, 32))
    assert "'model.mtp.lm_head.weight'" in text


def test_draft_blocks_beyond_the_first_are_left_alone() -> None:
    model = with_shape(tiny_llama(), "model.mtp.layers.1.anything.weight", 3)
    family = find_family(model.arch, model.shapes)
    draft = draft_geometry(family, model.arch, model.shapes)
    assert draft.layer == LayerGeometry(4, 2, 40)
