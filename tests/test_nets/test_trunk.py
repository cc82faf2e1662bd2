"""The trunk: folded widths, compute types, what it shares with the draft."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nets.errors import ModelError
from nets.trunk import Shared, Trunk, build_shared, build_trunk
from tests.builders import (
    HIDDEN,
    VOCAB,
    TinyModel,
    TinySpec,
    model_of,
    tiny_ernie,
    tiny_glm,
    tiny_llama,
    tiny_mimo,
    tiny_mistral,
    tiny_qwen2,
    tiny_qwen3,
    tiny_qwen3_5,
)

torch.set_num_threads(1)

DENSE = [
    tiny_llama,
    tiny_mistral,
    tiny_qwen2,
    tiny_mimo,
    tiny_ernie,
    tiny_qwen3,
    tiny_qwen3_5,
]
Build = Callable[[TinySpec], TinyModel]


def trunk_of(model: TinyModel, dtype: torch.dtype = torch.float32) -> Trunk:
    return build_trunk(*model, device="cpu", dtype=dtype)


def some_ids(batch: int = 2, length: int = 11, seed: int = 5) -> Tensor:
    return torch.randint(
        VOCAB, (batch, length), generator=torch.Generator().manual_seed(seed)
    )


@pytest.mark.parametrize("tiny", DENSE)
def test_a_narrow_ffn_equals_a_wide_one_with_the_rest_zeroed(tiny: Build) -> None:
    full = tiny(TinySpec())
    zeroed, cut = full.tensors, full.tensors
    for suffix, axis in (("gate_proj", 0), ("up_proj", 0), ("down_proj", 1)):
        name = f"model.layers.1.mlp.{suffix}.weight"
        cut[name] = full.read(name).narrow(axis, 0, 16)
        zeroed[name] = torch.cat(
            [cut[name], 0 * full.read(name).narrow(axis, 16, 32)], axis
        )
    narrow, wide = both_hidden(model_of(full.arch, cut), model_of(full.arch, zeroed))
    assert torch.equal(narrow, wide)


@pytest.mark.parametrize("tiny", [*DENSE, tiny_glm])
def test_fewer_heads_equal_more_with_the_rest_zeroed(tiny: Build) -> None:
    full = tiny(TinySpec())
    zeroed, cut = full.tensors, full.tensors
    # The second key/value head goes, and the two query heads it serves.
    for letter in "qkv":
        for kind in ("weight", "bias"):
            name = f"model.layers.1.self_attn.{letter}_proj.{kind}"
            if name in full.shapes:
                cut[name] = full.read(name)[: full.shapes[name][0] // 2]
    name = "model.layers.1.self_attn.o_proj.weight"
    cut[name] = full.read(name)[:, :16]
    zeroed[name] = torch.cat([cut[name], torch.zeros(HIDDEN, 16)], dim=1)
    narrow, wide = both_hidden(model_of(full.arch, cut), model_of(full.arch, zeroed))
    # GEMMs of other shapes sum in another order, so f32 rounding remains.
    torch.testing.assert_close(narrow, wide, rtol=0, atol=1e-5)


def both_hidden(left: TinyModel, right: TinyModel) -> tuple[Tensor, Tensor]:
    return trunk_of(left).hidden(some_ids()), trunk_of(right).hidden(some_ids())


def test_bf16_weights_leave_the_rotary_in_f32() -> None:
    trunk = trunk_of(tiny_llama(), torch.bfloat16)
    inv_freq = trunk.shared.rotary.inv_freq
    assert isinstance(inv_freq, Tensor)
    assert inv_freq.dtype == torch.float32
    assert torch.equal(inv_freq, 1 / 1e4 ** (torch.arange(0, 8, 2) / 8))
    assert {t.dtype for t in trunk.layers.parameters()} == {torch.bfloat16}


# Not of a hybrid: test_trunk_families holds its bf16 to `transformers'.
@pytest.mark.parametrize("build", DENSE[:-1])
def test_bf16_layers_add_to_rows_that_stay_f32(build: Build) -> None:
    model = build(TinySpec())
    rounded = model_of(
        model.arch, {name: t.bfloat16().float() for name, t in model.tensors.items()}
    )
    found, exact = (
        trunk_of(rounded, dtype).hidden(some_ids())
        for dtype in (torch.bfloat16, torch.float32)
    )
    assert not torch.equal(found, found.bfloat16().float()), "rounded on the way"
    # What two layers add goes through some eight roundings of 2**-9 at most, as many as the
    # processor's own products in bf16 or those made of f32 take; the rows it joins do not.
    assert (found - exact).norm() < 2**-6 * exact.norm()


def test_padding_and_batch_neighbours_change_no_row() -> None:
    trunk, ids_BT = trunk_of(tiny_qwen3()), some_ids(3, 12)
    together = trunk.hidden(ids_BT)
    alone = trunk.hidden(ids_BT[1:2, :7])
    # Other GEMM shapes sum in another order: f32 rounding only.
    torch.testing.assert_close(together[1:2, :7], alone, rtol=0, atol=1e-5)


def test_everything_is_frozen_and_in_eval() -> None:
    trunk = trunk_of(tiny_llama())
    assert not trunk.hidden(some_ids()).requires_grad
    for module in (trunk.layers, trunk.shared.final_norm, trunk.shared.rotary):
        assert not any(m.training for m in module.modules())
        assert not any(p.requires_grad for p in module.parameters())


def test_a_tied_head_is_the_embedding_itself() -> None:
    tied, own = trunk_of(tiny_qwen3()).shared, trunk_of(tiny_llama()).shared
    assert tied.head_VH is tied.embed_VH
    assert not torch.equal(own.head_VH, own.embed_VH)


def test_shared_reads_three_tensors_and_equals_the_trunks() -> None:
    model, asked = tiny_llama(), []

    def read(name: str) -> Tensor:
        asked.append(name)
        return model.read(name)

    shared = build_shared(model.arch, model.shapes, read, device="cpu", dtype=torch.float32)
    assert sorted(asked) == [
        "lm_head.weight",
        "model.embed_tokens.weight",
        "model.norm.weight",
    ]
    assert_same_shared(shared, trunk_of(model).shared)


def assert_same_shared(left: Shared, right: Shared) -> None:
    assert torch.equal(left.embed_VH, right.embed_VH)
    assert torch.equal(left.head_VH, right.head_VH)
    row = torch.linspace(-1, 1, HIDDEN)[None, None]
    assert torch.equal(left.final_norm(row), right.final_norm(row))
    position = torch.tensor([[3]])
    assert torch.equal(left.rotary(row, position)[0], right.rotary(row, position)[0])


def test_nothing_is_read_of_a_refused_model() -> None:
    model = tiny_llama(TinySpec(arch={"partial_rotary_factor": 0.5}))

    def read(name: str) -> Tensor:
        raise AssertionError(f"read {name}")

    with pytest.raises(ModelError, match="partial_rotary_factor"):
        build_trunk(model.arch, model.shapes, read, device="cpu", dtype=torch.float32)
