"""The draft against plain loops, its copies and names, and a fresh one."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nets.draft import (
    Draft,
    KeyValues,
    build_draft,
    draft_from,
    fresh_draft_tensors,
    last_input_rms,
)
from nets.errors import ModelError
from nets.trunk import build_shared, build_trunk
from tests.builders import (
    EVERY_FAMILY,
    HIDDEN,
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
    tiny_qwen3_5_moe,
    tiny_qwen3_moe,
    tiny_qwen3_next,
)
from tests.hf_peer import doubles, plain_of
from tests.oracles.trunk import draft_rows, gain_of, norm, raw_rows

torch.set_num_threads(1)

MIXTURES = [tiny_qwen3_moe, tiny_qwen3_5_moe, tiny_qwen3_next, tiny_glm]
Build = Callable[[TinySpec], TinyModel]
T = 9


def draft_of(model: TinyModel, dtype: torch.dtype = torch.float32) -> Draft:
    shared = build_shared(*model, device="cpu", dtype=dtype)
    return build_draft(*model, shared)


def inputs(seed: int = 3) -> tuple[Tensor, Tensor]:
    """Tokens [1, T] and raw rows [1, T, H] of no trunk in particular."""
    generator = torch.Generator().manual_seed(seed)
    token_BT = torch.randint(VOCAB, (1, T), generator=generator)
    return token_BT, 3 * torch.randn(1, T, HIDDEN, generator=generator)


def positions(start: int = 0, count: int = T) -> Tensor:
    return torch.arange(start, start + count)[None]


@pytest.mark.parametrize("tiny", EVERY_FAMILY)
def test_step_1_equals_plain_loops(tiny: Build) -> None:
    model = tiny(TinySpec(draft=(3, 3, 24)))  # widths unlike the trunk's
    draft, (token_BT, hidden_BTH) = draft_of(model), inputs()
    tensors, plain = doubles(model), plain_of(model)
    o_BTH = draft.block(draft.fuse(token_BT, hidden_BTH), positions())
    raw = draft_rows(token_BT[0].tolist(), hidden_BTH[0].double().numpy(), tensors, plain)
    # f32 rounds at 6e-8; one layer of sums over up to 64 terms stays well inside 1e-5.
    np.testing.assert_allclose(o_BTH[0].detach().numpy(), raw, rtol=0, atol=1e-5)
    found = draft.read_out(o_BTH)[0].detach().numpy()
    if tiny is tiny_ernie:  # its head reads the block's own rows
        assert "model.mtp.norm.weight" not in tensors
        np.testing.assert_array_equal(found, o_BTH[0].detach().numpy())
        return
    gain = gain_of(tensors, "model.mtp.norm.weight", plain)
    normed = np.stack([norm(row, gain, 1e-6) for row in raw])
    np.testing.assert_allclose(found, normed, rtol=0, atol=1e-5)


@pytest.mark.parametrize("tiny", MIXTURES)
def test_the_draft_of_a_mixture_may_be_dense(tiny: Build) -> None:
    model = tiny(TinySpec(is_draft_dense=True))
    draft, (token_BT, hidden_BTH) = draft_of(model), inputs()
    tensors, plain = doubles(model), plain_of(model)
    o_BTH = draft.block(draft.fuse(token_BT, hidden_BTH), positions())
    raw = draft_rows(token_BT[0].tolist(), hidden_BTH[0].double().numpy(), tensors, plain)
    np.testing.assert_allclose(o_BTH[0].detach().numpy(), raw, rtol=0, atol=1e-5)
    assert draft.tensors().keys() == {n for n in model.shapes if "model.mtp." in n}


@pytest.mark.parametrize("tiny", MIXTURES)
def test_experts_go_out_as_they_came_in(tiny: Build) -> None:
    model = tiny(TinySpec())
    tensors = model.tensors
    own = {n: t for n, t in tensors.items() if n.startswith("model.mtp.")}
    assert_same(draft_of(model).tensors(), own)
    layer = "model.mtp.layers.0.mlp.experts."
    down = [own.pop(f"{layer}{e}.down_proj.weight") for e in range(5)]
    both = [
        torch.cat([own.pop(f"{layer}{e}.{p}_proj.weight") for p in ("gate", "up")])
        for e in range(5)
    ]
    own |= {
        layer + "down_proj": torch.stack(down),
        layer + "gate_up_proj": torch.stack(both),
    }
    trunk = {n: t for n, t in tensors.items() if not n.startswith("model.mtp.")}
    assert_same(draft_of(model_of(model.arch, trunk | own)).tensors(), own)


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("tiny", EVERY_FAMILY)
def test_rows_fed_one_by_one_through_key_values_equal_plain_loops(tiny: Build) -> None:
    model = tiny(TinySpec())
    draft, (token_BT, hidden_BTH) = draft_of(model), inputs()
    x_BTH, cache = draft.fuse(token_BT, hidden_BTH), KeyValues()
    rows = []
    for t in range(T):
        sees_all = torch.ones(1, 1, 1, t + 1, dtype=torch.bool)
        rows.append(
            draft.block(x_BTH[:, t : t + 1], positions(t, 1), sees_all, cache)[0, 0]
        )
    tensors, plain = doubles(model), plain_of(model)
    expected = draft_rows(
        token_BT[0].tolist(), hidden_BTH[0].double().numpy(), tensors, plain
    )
    np.testing.assert_allclose(
        torch.stack(rows).detach().numpy(), expected, rtol=0, atol=1e-5
    )


def test_a_row_sees_what_its_mask_says() -> None:
    draft, (token_BT, hidden_BTH) = draft_of(tiny_qwen3()), inputs()
    x_BTH = draft.fuse(token_BT, hidden_BTH)
    only_itself = torch.eye(T, dtype=torch.bool)[None, None]
    together = draft.block(x_BTH, positions(), only_itself)
    alone = [draft.block(x_BTH[:, t : t + 1], positions(t, 1)) for t in range(T)]
    torch.testing.assert_close(together, torch.cat(alone, dim=1), rtol=0, atol=1e-5)


def test_the_embedding_half_comes_first() -> None:
    draft, (token_BT, hidden_BTH) = draft_of(tiny_llama()), inputs()
    with torch.no_grad():
        draft.eh_proj.weight[:, HIDDEN:] = 0
    assert torch.equal(draft.fuse(token_BT, hidden_BTH), draft.fuse(token_BT, -hidden_BTH))
    assert not torch.equal(
        draft.fuse(token_BT, hidden_BTH), draft.fuse(token_BT.flip(1), hidden_BTH)
    )


@pytest.mark.parametrize("tiny", EVERY_FAMILY)
def test_bf16_autocast_keeps_f32_masters_and_gradients(tiny: Build) -> None:
    model = tiny(TinySpec())
    draft, (token_BT, hidden_BTH) = draft_of(model, torch.bfloat16), inputs()
    exact = draft.read_out(draft.block(draft.fuse(token_BT, hidden_BTH), positions()))
    trained = draft.trainable("all")
    with torch.autocast("cpu", torch.bfloat16):
        o_BTH = draft.block(draft.fuse(token_BT, hidden_BTH), positions())
        rounded = draft.read_out(o_BTH)
    torch.autograd.backward(rounded.square().sum())
    assert {p.dtype for p in trained} == {torch.float32}
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in trained)
    # bf16 keeps 8 bits: 2**-8 a rounding, some ten roundings deep, on rows of rms 1.
    assert (rounded - exact).abs().max().item() < 10 * 2**-8 * exact.abs().max().item()


def test_weights_are_copies_and_snapshots_stay() -> None:
    model = tiny_llama()
    before = {n: t.clone() for n, t in model.tensors.items() if n.startswith("model.mtp.")}
    draft = draft_of(model)
    snapshot = draft.tensors()
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter.add_(1)
    assert snapshot.keys() == before.keys()
    for name, tensor in before.items():
        assert torch.equal(model.read(name), tensor), name
        assert torch.equal(snapshot[name], tensor), name
        assert torch.equal(draft.tensors()[name], tensor + 1), name
    assert torch.equal(draft_from(snapshot, draft.shared).eh_proj.weight, before[EH_PROJ])


EH_PROJ = "model.mtp.eh_proj.weight"


def test_what_is_trained_is_block_and_norm_or_all() -> None:
    draft = draft_of(tiny_qwen3())
    frozen = {"enorm.weight", "hnorm.weight", "eh_proj.weight"}

    def names(chosen: list[nn.Parameter]) -> set[str]:
        return {n for n, p in draft.named_parameters() if any(p is c for c in chosen)}

    everything = set(draft.state_dict())
    assert names(draft.trainable("block")) == everything - frozen
    assert {n for n, p in draft.named_parameters() if not p.requires_grad} == frozen
    assert names(draft.trainable("all")) == everything
    assert len(everything) == 4 + 11


def test_a_missing_draft_offers_two_ways_out() -> None:
    with pytest.raises(ModelError, match=r"`init`.*`start_from_last_layer: true`"):
        draft_of(tiny_llama(TinySpec(draft=None)))


@pytest.mark.parametrize("tiny", EVERY_FAMILY)
def test_a_fresh_draft_adds_the_two_normed_halves_and_copies_the_last_layer(
    tiny: Build,
) -> None:
    model = tiny(TinySpec(layers=[(4, 2, 48), (2, 1, 24)], draft=None))
    shared = build_shared(*model, device="cpu", dtype=torch.float32)
    fresh = fresh_draft_tensors(*model, hidden_rms=2.5)
    draft, (token_BT, hidden_BTH) = draft_from(fresh, shared), inputs()
    embedded, hidden = shared.embed_VH[token_BT[0, 4]].double(), hidden_BTH[0, 4].double()
    expected = 2.5 * (
        norm(embedded.numpy(), np.ones(HIDDEN), 1e-6)
        + norm(hidden.numpy(), np.ones(HIDDEN), 1e-6)
    )
    found = draft.fuse(token_BT, hidden_BTH)[0, 4].detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    last_full = 0 if tiny is tiny_qwen2 else 1  # whose last layer has a window
    assert_copied(fresh, model, f"model.layers.{last_full}.")
    if tiny is tiny_ernie:
        assert "model.mtp.norm.weight" not in fresh
    else:
        assert torch.equal(fresh["model.mtp.norm.weight"], model.read("model.norm.weight"))


def assert_copied(fresh: dict[str, Tensor], model: TinyModel, layer: str) -> None:
    copied = {n.removeprefix(layer): t for n, t in model.tensors.items() if layer in n}
    block = "model.mtp.layers.0."
    assert_same({n.removeprefix(block): t for n, t in fresh.items() if block in n}, copied)


@pytest.mark.parametrize("tiny", [tiny_qwen3_5, tiny_qwen3_5_moe, tiny_qwen3_next])
def test_a_fresh_draft_of_a_hybrid_copies_its_last_full_attention(tiny: Build) -> None:
    kinds = ("FullAttention", "FullAttention", "LinearAttention")
    layers = [(4, 2, 48), (2, 1, 24), (4, 4, 8)]
    model = tiny(TinySpec(layers=layers, draft=None, arch={"layer_types": kinds}))
    fresh = fresh_draft_tensors(*model, hidden_rms=1.0)
    assert_copied(fresh, model, "model.layers.1.")
    trunk = build_trunk(*model, device="cpu", dtype=torch.float32)
    rows = raw_rows([3, 1, 4], doubles(model), plain_of(model, layers=1))
    channels = np.sqrt(np.mean(rows**2, axis=0))
    found = last_input_rms(trunk, torch.tensor([[3, 1, 4]]))
    assert found == pytest.approx(float(np.median(channels)), rel=1e-5)


def test_a_trunk_of_delta_nets_only_has_no_layer_for_a_draft() -> None:
    spec = TinySpec(draft=None, arch={"layer_types": ("LinearAttention",) * 2})
    with pytest.raises(ModelError, match="no attention layer"):
        fresh_draft_tensors(*tiny_qwen3_5(spec), hidden_rms=1.0)


def test_the_last_layers_input_rms_is_the_median_channel_s() -> None:
    model = tiny_llama(TinySpec(layers=[(4, 2, 48), (2, 1, 24), (4, 4, 8)]))
    trunk = build_trunk(*model, device="cpu", dtype=torch.float32)
    tensors, plain = doubles(model), plain_of(model, layers=2)
    rows = raw_rows([3, 1, 4, 1, 5], tensors, plain)
    found = last_input_rms(trunk, torch.tensor([[3, 1, 4, 1, 5]]))
    channels = [np.sqrt(np.mean(rows[:, h] ** 2)) for h in range(rows.shape[1])]
    assert found == pytest.approx(float(np.median(channels)), rel=1e-5)
