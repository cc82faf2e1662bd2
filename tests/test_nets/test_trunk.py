"""The trunk against `transformers`' own model (exactly) and against plain loops (1e-5)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from nets.errors import ModelError
from nets.trunk import Shared, Trunk, build_shared, build_trunk
from tests.builders import (
    HEAD_DIM,
    HIDDEN,
    VOCAB,
    TinyModel,
    TinySpec,
    model_of,
    tiny_llama,
    tiny_qwen3,
)
from tests.oracles.trunk import Plain, YarnOracle, logits, raw_rows

torch.set_num_threads(1)

TINY = [tiny_llama, tiny_qwen3]
UNEVEN = [(4, 2, 48), (2, 1, 17), (3, 3, 40)]
YARN = {
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 2.0,
    "beta_slow": 0.5,
    "attention_factor": 1.1,
}
Build = Callable[[TinySpec], TinyModel]


def trunk_of(model: TinyModel, dtype: torch.dtype = torch.float32) -> Trunk:
    return build_trunk(*model, device="cpu", dtype=dtype)


def some_ids(batch: int = 2, length: int = 11, seed: int = 5) -> Tensor:
    return torch.randint(
        VOCAB, (batch, length), generator=torch.Generator().manual_seed(seed)
    )


def peer(model: TinyModel) -> Any:  # transformers has no types
    """`transformers`' model for the same tensors, built the usual way."""
    is_llama = model.arch.arch_name == "llama"
    config = (LlamaConfig if is_llama else Qwen3Config)(
        hidden_size=HIDDEN,
        vocab_size=VOCAB,
        head_dim=HEAD_DIM,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": model.arch.rope_theta},
        tie_word_embeddings=not is_llama,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    reference = (LlamaForCausalLM if is_llama else Qwen3ForCausalLM)(config)
    trunk = {n: t for n, t in model.tensors.items() if not n.startswith("model.mtp.")}
    reference.load_state_dict(trunk, strict=is_llama)
    return reference.eval()


@pytest.mark.parametrize("tiny", TINY)
def test_logits_are_those_of_transformers_bit_for_bit(tiny: Build) -> None:
    model = tiny(TinySpec())
    trunk, ids_BT = trunk_of(model), some_ids()
    with torch.no_grad():
        expected = peer(model)(input_ids=ids_BT, use_cache=False).logits
    found = trunk.logits(trunk.hidden(ids_BT).flatten(0, 1))
    assert torch.equal(found.view_as(expected), expected)


def oracle_logits(
    model: TinyModel, ids: Sequence[int], layers: int
) -> np.ndarray[Any, Any]:
    tensors = {name: t.double().numpy() for name, t in model.tensors.items()}
    yarn = None
    if model.arch.yarn is not None:
        y = model.arch.yarn
        original = y.original_max_position_embeddings
        yarn = YarnOracle(y.factor, original, y.beta_fast, y.beta_slow, y.attention_factor)
    plain = Plain(layers, HEAD_DIM, 1e-6, model.arch.rope_theta, yarn)
    return logits(raw_rows(ids, tensors, plain), tensors, plain)


@pytest.mark.parametrize("tiny", TINY)
@pytest.mark.parametrize("arch", [{}, {"yarn": YARN}], ids=["plain", "yarn"])
def test_uneven_layers_equal_plain_loops(tiny: Build, arch: dict[str, object]) -> None:
    model = tiny(TinySpec(layers=UNEVEN, arch=arch))
    ids_BT = some_ids(1, 19)
    trunk = trunk_of(model)
    found = trunk.logits(trunk.hidden(ids_BT)[0])
    expected = oracle_logits(model, ids_BT[0].tolist(), layers=3)
    # f32 rounds at 6e-8; three layers of sums over 32 to 48 terms stay well inside 1e-5.
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("tiny", TINY)
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


@pytest.mark.parametrize("tiny", TINY)
def test_fewer_heads_equal_more_with_the_rest_zeroed(tiny: Build) -> None:
    full = tiny(TinySpec())
    zeroed, cut = full.tensors, full.tensors
    # The second key/value head goes, and the two query heads it serves.
    for letter, rows in (("q", 16), ("k", 8), ("v", 8)):
        name = f"model.layers.1.self_attn.{letter}_proj.weight"
        cut[name] = full.read(name)[:rows]
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
    assert {t.dtype for t in trunk.base.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("build", TINY)
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
    # What two layers add is rounded to 2**-9, some four times; the rows it joins are not.
    assert (found - exact).norm() < 2**-7 * exact.norm()


def test_padding_and_batch_neighbours_change_no_row() -> None:
    trunk, ids_BT = trunk_of(tiny_qwen3()), some_ids(3, 12)
    together = trunk.hidden(ids_BT)
    alone = trunk.hidden(ids_BT[1:2, :7])
    # Other GEMM shapes sum in another order: f32 rounding only.
    torch.testing.assert_close(together[1:2, :7], alone, rtol=0, atol=1e-5)


def test_everything_is_frozen_and_in_eval() -> None:
    trunk = trunk_of(tiny_llama())
    assert not trunk.hidden(some_ids()).requires_grad
    for module in (trunk.base, trunk.shared.final_norm, trunk.shared.rotary):
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
