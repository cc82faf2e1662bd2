"""Folding: importance, plan, and that a fold is the full trunk with parts zeroed."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from cmfio.header import Header
from nets.errors import ModelError
from nets.fold import (
    FoldPlan,
    ffn_importance,
    ffn_importance_by_weights,
    fold_arch,
    fold_plan,
    fold_tensors,
)
from nets.geometry import trunk_geometry
from nets.trunk import build_trunk
from tests.builders import (
    HEAD_DIM,
    VOCAB,
    TinyModel,
    TinySpec,
    model_of,
    tiny_ernie,
    tiny_glm,
    tiny_llama,
    tiny_qwen2,
    tiny_qwen3,
    tiny_qwen3_5,
)
from tests.hf_peer import doubles, plain_of
from tests.oracles.trunk import Plain, attend, decoder_layer, norm, raw_rows

torch.set_num_threads(1)

WIDE = [(4, 2, 96), (2, 1, 64), (4, 4, 100)]
Build = Callable[[TinySpec], TinyModel]


def some_ids(batch: int = 2, length: int = 10) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(VOCAB, (batch, length), generator=generator)


def test_importance_is_what_plain_loops_sum() -> None:
    model = tiny_llama(TinySpec(layers=[(4, 2, 12), (2, 1, 7)]))
    trunk = build_trunk(*model, device="cpu", dtype=torch.float32)
    ids_BT = some_ids()
    found = ffn_importance(trunk, [ids_BT[:1], ids_BT[1:]])
    tensors = {name: t.double().numpy() for name, t in model.tensors.items()}
    plain = Plain(2, HEAD_DIM, 1e-6, 1e4)
    sums = [np.zeros(12), np.zeros(7)]
    for ids in ids_BT.tolist():
        rows = tensors["model.embed_tokens.weight"][ids]
        for i in range(2):
            p = f"model.layers.{i}."
            gain = tensors[f"{p}input_layernorm.weight"]
            inner = np.stack([norm(row, gain, plain.eps) for row in rows])
            for row in rows + attend(inner, tensors, p, plain, 0):
                x = norm(row, tensors[f"{p}post_attention_layernorm.weight"], plain.eps)
                gate = tensors[f"{p}mlp.gate_proj.weight"] @ x
                up = tensors[f"{p}mlp.up_proj.weight"] @ x
                sums[i] += (gate / (1 + np.exp(-gate)) * up) ** 2
            rows = decoder_layer(rows, tensors, p, plain)
    for i in range(2):
        down = tensors[f"model.layers.{i}.mlp.down_proj.weight"]
        expected = [sums[i][f] * sum(down[:, f] ** 2) for f in range(len(sums[i]))]
        np.testing.assert_allclose(
            found[i].numpy(), expected, rtol=1e-4
        )  # f32 squares, summed


def test_importance_by_weights_of_one_neuron_by_hand() -> None:
    model = tiny_llama()
    tensors = model.tensors
    for name in ("gate_proj", "up_proj", "down_proj"):
        tensors[f"model.layers.0.mlp.{name}.weight"].zero_()
    tensors["model.layers.0.mlp.gate_proj.weight"][5, 0] = 2.0
    tensors["model.layers.0.mlp.up_proj.weight"][5, 1:3] = 1.0
    tensors["model.layers.0.mlp.down_proj.weight"][7, 5] = 3.0
    first = ffn_importance_by_weights(*model)[0]
    assert first[5].item() == 4 * 2 * 9
    assert first.sum().item() == 4 * 2 * 9


def test_the_plan_keeps_the_most_important_in_order() -> None:
    rising = torch.arange(96.0)
    flat = torch.ones(100)
    plan = fold_plan([rising, rising, flat], drop=[1], keep=[0.33, 0.6])
    assert plan.layers == (0, 2)
    assert plan.neurons[0].tolist() == list(range(64, 96))
    assert plan.neurons[1].tolist() == list(
        range(64)
    )  # 60 → 64; all equal, so the first ones


@pytest.mark.parametrize(
    ("total", "share", "width"),
    [
        (1536, 0.75, 1152),  # a multiple of 32 already
        (576, 0.35, 192),  # 201.6
        (96, 0.01, 32),  # never less than a group
        (100, 0.99, 96),  # 100 can't be stored in groups of 32
        (100, 1.0, 100),  # nothing was to go
        (20, 1.0, 20),  # fewer than a group: all stay
    ],
)
def test_widths_are_whole_groups(total: int, share: float, width: int) -> None:
    assert len(fold_plan([torch.rand(total)], drop=[], keep=[share]).neurons[0]) == width


@pytest.mark.parametrize(
    ("drop", "keep", "named"),
    [
        ([3], [1.0], r"\[3\] can't go; the model has layers 0 to 2"),
        ([-1], [1.0], r"\[-1\] can't go"),
        ([0, 1, 2], [1.0], "all of them"),
        ([0], [0.5, 0.5, 0.5], "each of the 2 layers that stay"),
        ([0], [0.0], "above 0 and at most 1"),
        ([0], [1.5], "above 0 and at most 1"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(
    drop: list[int], keep: list[float], named: str
) -> None:
    with pytest.raises(ModelError, match=named):
        fold_plan([torch.rand(64)] * 3, drop, keep)


def folded(model: TinyModel, plan: FoldPlan) -> TinyModel:
    header = Header(arch=model.arch, quant_type="F32")
    arch = header.replace_arch(**fold_arch(plan, model.arch)).arch
    parts = fold_tensors(plan, model.shapes)
    return model_of(arch, {part.name: part.cut(model.read(part.source)) for part in parts})


@pytest.mark.parametrize("tiny", [tiny_llama, tiny_qwen2, tiny_qwen3, tiny_ernie])
def test_a_folded_trunk_is_the_full_one_with_the_rest_zeroed(tiny: Build) -> None:
    heads = {"attention_heads_per_layer": (4, 2, 4), "kv_heads_per_layer": (2, 1, 4)}
    model = tiny(TinySpec(layers=WIDE, arch=heads))
    plan = fold_plan(ffn_importance_by_weights(*model), drop=[1], keep=[0.34, 0.65])
    small = folded(model, plan)
    zeroed = model.tensors
    # A layer whose two outputs are zero passes its input on.
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        zeroed[f"model.layers.1.{name}.weight"] = 0 * model.read(
            f"model.layers.1.{name}.weight"
        )
    for i, kept in zip(plan.layers, plan.neurons, strict=True):
        gone = torch.ones(WIDE[i][2], dtype=torch.bool)
        gone[kept] = False
        down = model.read(f"model.layers.{i}.mlp.down_proj.weight").clone()
        down[:, gone] = 0
        zeroed[f"model.layers.{i}.mlp.down_proj.weight"] = down
    found = build_trunk(*small, device="cpu", dtype=torch.float32).hidden(some_ids())
    full = build_trunk(*model_of(model.arch, zeroed), device="cpu", dtype=torch.float32)
    # The same terms in another order, so f32 rounding remains.
    torch.testing.assert_close(found, full.hidden(some_ids()), rtol=0, atol=1e-5)
    assert small.arch.attention_heads_per_layer == (4, 4)
    assert small.arch.kv_heads_per_layer == (2, 4)
    assert (small.arch.num_layers, small.arch.intermediate_size) == (2, 64)


def test_a_hybrid_s_layers_and_neurons_can_go() -> None:
    model = tiny_qwen3_5(TinySpec(layers=[(4, 2, 96), (4, 2, 64), (4, 4, 100)]))
    plan = fold_plan(ffn_importance_by_weights(*model), drop=[1], keep=[0.34, 0.65])
    small = folded(model, plan)
    assert small.arch.layer_types == ("LinearAttention", "FullAttention")
    tensors, plain = doubles(small), plain_of(small)
    expected = raw_rows(some_ids()[0].tolist(), tensors, plain)
    found = build_trunk(*small, device="cpu", dtype=torch.float32).hidden(some_ids())[0]
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-5)
    for i, kept in zip((0, 2), plan.neurons, strict=True):
        up = model.read(f"model.layers.{i}.mlp.up_proj.weight")
        assert torch.equal(
            small.read(f"model.layers.{i // 2}.mlp.up_proj.weight"), up[kept]
        )


@pytest.mark.parametrize("listed", [[2], [False, False, True]])
def test_a_layer_without_rotary_keeps_being_one(listed: list[object]) -> None:
    model = tiny_llama(TinySpec(layers=WIDE, arch={"no_rope_layers": listed}))
    plan = fold_plan(ffn_importance_by_weights(*model), drop=[0, 1], keep=[1.0])
    small = folded(model, plan)
    layers = trunk_geometry(small.arch, small.shapes).layers
    assert [layer.is_rotated for layer in layers] == [False]


def test_a_mixture_is_not_folded() -> None:
    model = tiny_glm()  # whose first layer is dense
    named = r"model\.layers\.1\.mlp is a mixture of 5 experts"
    with pytest.raises(ModelError, match=named):
        ffn_importance_by_weights(*model)
    trunk = build_trunk(*model, device="cpu", dtype=torch.float32)
    with pytest.raises(ModelError, match=named):
        ffn_importance(trunk, [some_ids()])


def test_layers_move_up_and_everything_else_stays_whole() -> None:
    names = [
        "model.embed_tokens.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.1.input_layernorm.weight",
        "model.layers.2.mlp.down_proj.weight",
        "model.layers.2.input_layernorm.weight",
        "model.mtp.layers.0.mlp.up_proj.weight",
    ]
    plan = FoldPlan((0, 2), (torch.tensor([1]), torch.tensor([0, 2])))
    parts = fold_tensors(plan, names)
    assert [(p.name, p.source, p.kept is None) for p in parts] == [
        (names[0], names[0], True),
        (names[1], names[1], False),
        ("model.layers.1.mlp.down_proj.weight", names[3], False),
        ("model.layers.1.input_layernorm.weight", names[4], True),
        (names[5], names[5], True),
    ]
    assert parts[2].cut(torch.tensor([[1, 2, 3], [4, 5, 6]])).tolist() == [[1, 3], [4, 6]]
    assert parts[1].cut(torch.tensor([[1, 2], [3, 4], [5, 6]])).tolist() == [[3, 4]]


def test_a_model_with_skills_is_not_folded() -> None:
    plan = FoldPlan((0,), (torch.tensor([0]),))
    with pytest.raises(ModelError, match=r"'skill.gfx.model.layers.0.mlp.up_proj.weight'"):
        fold_tensors(plan, ["skill.gfx.model.layers.0.mlp.up_proj.weight"])
