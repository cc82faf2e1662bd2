"""Every family's trunk: `transformers`' own bit for bit, plain loops to 1e-5.

And what only some have: experts stacked or not, delta nets, windows, layers without rotary.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nets.errors import ModelError
from nets.geometry import trunk_geometry
from nets.trunk import Trunk, build_trunk
from tests.builders import (
    EVERY_FAMILY,
    VOCAB,
    TinyModel,
    TinySpec,
    model_of,
    tiny_glm,
    tiny_llama,
    tiny_mistral,
    tiny_qwen2,
    tiny_qwen3_5,
    tiny_qwen3_5_moe,
    tiny_qwen3_moe,
    tiny_qwen3_next,
)
from tests.hf_peer import doubles, peer, plain_of
from tests.oracles.trunk import Plain, logits, raw_rows

torch.set_num_threads(1)

Build = Callable[[TinySpec], TinyModel]
UNEVEN = [(4, 2, 48), (2, 1, 17), (3, 3, 40)]
MIXTURES = [tiny_qwen3_moe, tiny_qwen3_5_moe, tiny_qwen3_next, tiny_glm]


def trunk_of(model: TinyModel, dtype: torch.dtype = torch.float32) -> Trunk:
    return build_trunk(*model, device="cpu", dtype=dtype)


def some_ids(batch: int = 2, length: int = 11) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(VOCAB, (batch, length), generator=generator)


def found_logits(model: TinyModel, ids_BT: Tensor) -> Tensor:
    trunk = trunk_of(model)
    return trunk.logits(trunk.hidden(ids_BT).flatten(0, 1)).view(*ids_BT.shape, VOCAB)


def assert_plain(model: TinyModel, plain: Plain | None = None, length: int = 19) -> None:
    ids_BT, tensors = some_ids(1, length), doubles(model)
    plain = plain or plain_of(model)
    expected = logits(raw_rows(ids_BT[0].tolist(), tensors, plain), tensors, plain)
    # f32 rounds at 6e-8 and a layer sums up to 64 terms; a delta net's norm divides by an
    # output that may be a tenth of what it came from. So 1e-5 of the largest logit.
    atol = 1e-5 * abs(expected).max()
    found = found_logits(model, ids_BT)[0].numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("tiny", EVERY_FAMILY)
def test_logits_are_those_of_transformers_bit_for_bit(tiny: Build) -> None:
    model, ids_BT = tiny(TinySpec()), some_ids(2, 70)  # past a chunk of the delta rule
    with torch.no_grad():
        expected = peer(model)(input_ids=ids_BT, use_cache=False).logits
    assert torch.equal(found_logits(model, ids_BT), expected)


@pytest.mark.parametrize("tiny", EVERY_FAMILY)
def test_layers_of_uneven_width_equal_plain_loops(tiny: Build) -> None:
    assert_plain(tiny(TinySpec(layers=UNEVEN)))


def test_a_delta_net_past_its_first_chunk_equals_plain_loops() -> None:
    assert_plain(tiny_qwen3_5(), length=70)


@pytest.mark.parametrize("tiny", [tiny_qwen3_5, tiny_glm])
def test_yarn_on_part_of_a_head_equals_plain_loops(tiny: Build) -> None:
    yarn = {"factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.1}
    assert_plain(tiny(TinySpec(arch={"yarn": yarn})))


@pytest.mark.parametrize("tiny", [tiny_mistral, tiny_qwen2])
def test_a_window_hides_what_is_further_back(tiny: Build) -> None:
    model = tiny(TinySpec())
    window = model.arch.sliding_window
    assert window is not None
    ids_BT = some_ids(1, 12)
    changed_BT = ids_BT.clone()
    changed_BT[0, 0] = (ids_BT[0, 0] + 1) % VOCAB
    rows, changed = (trunk_of(model).hidden(ids)[0] for ids in (ids_BT, changed_BT))
    reach = 1 + len(plain_of(model).windowed) * (window - 1)
    is_same = [torch.equal(a, b) for a, b in zip(rows, changed, strict=True)]
    if tiny is tiny_mistral:  # two layers of windows
        assert is_same == [t >= reach for t in range(12)]
    else:  # the first layer sees all
        assert not any(is_same)


@pytest.mark.parametrize("listed", [[1], [False, True, False]])
def test_listed_layers_carry_no_position(listed: list[object]) -> None:
    spec = TinySpec(layers=UNEVEN, arch={"no_rope_layers": listed})
    for tiny in (tiny_llama, tiny_glm):
        model = tiny(spec)
        assert_plain(model, replace(plain_of(model), unrotated=(1,)))


@pytest.mark.parametrize("listed", [[1, 0], [0, 1], [2], [0, 0], ["0"], {"0": True}, 1])
def test_a_list_of_layers_without_rotary_that_can_be_misread_is_refused(
    listed: object,
) -> None:
    model = tiny_llama(TinySpec(arch={"no_rope_layers": listed}))
    with pytest.raises(ModelError, match=r"arch\.no_rope_layers is"):
        trunk_geometry(model.arch, model.shapes)


def stacked(model: TinyModel, prefix: str, count: int) -> TinyModel:
    """The same model with the experts of one layer as three-dimensional tensors."""
    tensors = model.tensors
    experts = [
        {p: tensors.pop(f"{prefix}mlp.experts.{e}.{p}_proj.weight") for p in PROJECTIONS}
        for e in range(count)
    ]
    both = [torch.cat([e["gate"], e["up"]]) for e in experts]
    tensors[f"{prefix}mlp.experts.gate_up_proj"] = torch.stack(both)
    down = torch.stack([e["down"] for e in experts])
    tensors[f"{prefix}mlp.experts.down_proj"] = down
    return model_of(model.arch, tensors)


PROJECTIONS = ("gate", "up", "down")


@pytest.mark.parametrize("tiny", MIXTURES)
def test_stacked_and_single_experts_are_the_same(tiny: Build) -> None:
    model = tiny(TinySpec())
    both = stacked(model, "model.layers.1.", 5)
    assert torch.equal(found_logits(both, some_ids()), found_logits(model, some_ids()))


def test_a_convolution_may_lack_its_axis_of_one() -> None:
    model = tiny_qwen3_5()
    tensors = model.tensors
    name = "model.layers.0.linear_attn.conv1d.weight"
    tensors[name] = tensors[name].squeeze(1)
    flat = model_of(model.arch, tensors)
    assert torch.equal(found_logits(flat, some_ids()), found_logits(model, some_ids()))


@pytest.mark.parametrize("tiny", MIXTURES)
def test_pruned_experts_are_stacked_in_order(tiny: Build) -> None:
    model = pruned(tiny(TinySpec()), (0, 2, 3))
    with torch.no_grad():
        expected = peer(model)(input_ids=some_ids(), use_cache=False).logits
    assert torch.equal(found_logits(model, some_ids()), expected)
    assert_plain(model)


def test_a_row_goes_to_as_many_experts_as_there_are() -> None:
    assert_plain(pruned(tiny_qwen3_moe(), (3,)))  # the header says two


def pruned(model: TinyModel, kept: tuple[int, ...]) -> TinyModel:
    """Some experts of every layer, under the numbers they had."""
    gone = [f".mlp.experts.{e}." for e in range(5) if e not in kept]
    tensors = {n: t for n, t in model.tensors.items() if not any(g in n for g in gone)}
    for name in tensors:
        if name.endswith(("mlp.gate.weight", "mlp.expert_bias")):
            tensors[name] = tensors[name][list(kept)]
    return model_of(model.arch, tensors)


def test_an_expert_never_chosen_can_go() -> None:
    full = tiny_glm()
    tensors = full.tensors
    tensors["model.layers.1.mlp.expert_bias"][[1, 4]] = -1e9
    wide, narrow = model_of(full.arch, tensors), pruned(full, (0, 2, 3))
    # Scores of three experts or of five: a GEMM may sum them otherwise.
    torch.testing.assert_close(
        found_logits(narrow, some_ids()), found_logits(wide, some_ids()), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("tiny", MIXTURES)
def test_narrow_experts_equal_wide_ones_with_the_rest_zeroed(tiny: Build) -> None:
    full = tiny(TinySpec())
    zeroed, cut = full.tensors, full.tensors
    for name in full.shapes:
        if name.startswith("model.layers.1.mlp.experts."):
            axis = 1 if "down_proj" in name else 0
            cut[name] = full.read(name).narrow(axis, 0, 8)
            rest = 0 * full.read(name).narrow(axis, 8, 8)
            zeroed[name] = torch.cat([cut[name], rest], axis)
    narrow, wide = model_of(full.arch, cut), model_of(full.arch, zeroed)
    found = found_logits(narrow, some_ids())
    # Sums of 8 terms or of 16 with 8 zeros: a GEMM may order them otherwise.
    torch.testing.assert_close(found, found_logits(wide, some_ids()), rtol=0, atol=1e-5)


def test_experts_of_an_odd_width_run_in_bf16() -> None:
    full = tiny_qwen3_moe()
    cut = full.tensors
    for name in full.shapes:
        if name.startswith("model.layers.1.mlp.experts."):
            cut[name] = full.read(name).narrow(1 if "down_proj" in name else 0, 0, 13)
    model = model_of(full.arch, cut)
    assert_plain(model)
    assert torch.isfinite(trunk_of(model, torch.bfloat16).hidden(some_ids())).all()


@pytest.mark.parametrize("tiny", [tiny_qwen3_5, tiny_qwen3_5_moe])
def test_fewer_delta_heads_equal_more_with_the_rest_zeroed(tiny: Build) -> None:
    full = tiny(TinySpec())
    p, cut, zeroed = "model.layers.0.linear_attn.", full.tensors, full.tensors
    # The second key head goes, and the two value heads it serves.
    keys, values = torch.arange(6), torch.arange(20)
    kept = torch.cat([keys, 12 + keys, 24 + values])
    rows = {"in_proj_qkv.weight": kept, "conv1d.weight": kept, "in_proj_z.weight": values}
    two = torch.arange(2)
    names = ("A_log", "dt_bias", "in_proj_a.weight", "in_proj_b.weight")
    rows |= dict.fromkeys(names, two)
    for name, index in rows.items():
        cut[p + name] = full.read(p + name)[index]
    out = full.read(f"{p}out_proj.weight")
    cut[f"{p}out_proj.weight"] = out[:, :20]
    zeroed[f"{p}out_proj.weight"] = torch.cat([out[:, :20], 0 * out[:, 20:]], 1)
    narrow, wide = model_of(full.arch, cut), model_of(full.arch, zeroed)
    found = found_logits(narrow, some_ids())
    # Products of other shapes sum in another order.
    torch.testing.assert_close(found, found_logits(wide, some_ids()), rtol=0, atol=3e-5)


@pytest.mark.parametrize("tiny", [tiny_qwen3_5, tiny_glm])
def test_decays_and_router_biases_stay_f32(tiny: Build) -> None:
    trunk = trunk_of(tiny(TinySpec()), torch.bfloat16)
    state = trunk.layers.state_dict()
    kept = {n.rpartition(".")[2] for n, t in state.items() if t.dtype == torch.float32}
    is_glm = tiny is tiny_glm
    assert kept == ({"e_score_correction_bias"} if is_glm else {"A_log", "dt_bias"})


def test_a_bf16_delta_net_is_that_of_transformers_bit_for_bit() -> None:
    model = tiny_qwen3_5()
    theirs = peer(model).bfloat16().model.layers[0].linear_attn
    for name in ("A_log", "dt_bias"):  # f32 in ours: as f32 as they are stored
        value = model.read(f"model.layers.0.linear_attn.{name}")
        setattr(theirs, name, nn.Parameter(value))
    ours = trunk_of(model, torch.bfloat16).layers[0].get_submodule("linear_attn")
    x_BTH = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = theirs(x_BTH.bfloat16())
        with torch.autocast("cpu", torch.bfloat16):
            found = ours(x_BTH)
    assert torch.equal(found, expected)


def test_a_sigmoid_router_chooses_in_f32_under_autocast() -> None:
    gate = trunk_of(tiny_glm(), torch.bfloat16).layers[1].get_submodule("mlp.gate")
    x_RH = torch.randn(50, 32, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        scores = x_RH.bfloat16().float() @ gate.get_parameter("weight").float().T
        with torch.autocast("cpu", torch.bfloat16):
            found = gate(x_RH)[0]
    torch.testing.assert_close(found, scores, rtol=0, atol=1e-5)


def test_a_copied_layer_has_weights_of_its_own() -> None:
    layer = trunk_of(tiny_qwen3_5()).layers[0].get_submodule("linear_attn")
    copied, x_BTH = deepcopy(layer), torch.ones(1, 3, 32)
    with torch.no_grad():
        before = layer(x_BTH)
        for parameter in copied.parameters():
            parameter.zero_()
        assert not copied(x_BTH).any()
        assert torch.equal(layer(x_BTH), before)
