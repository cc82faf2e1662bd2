"""A chain's attention without a mask: against softmax row by row, and decode rounds."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import nets.chain
import nets.own_steps
from conf.base import RAW
from nets.chain import unroll_exact
from nets.draft import build_draft
from nets.own_steps import LEAST, merges, own_steps
from nets.trunk import build_shared
from tests.builders import EVERY_FAMILY, TinyModel
from tests.hf_peer import doubles, plain_of
from tests.oracles.rounds import all_rounds

torch.set_num_threads(1)

SHAPE = (2, 3, 13, 8)  # windows, heads, positions, head_dim


def some(count: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(SHAPE, generator=generator) for _ in range(count)]


def by_rows(
    query: Tensor, keys: list[Tensor], values: list[Tensor], scale: float
) -> Tensor:
    """Softmax of each row over exactly what it sees."""
    rows = []
    for p in range(query.shape[2]):
        seen, said = (
            torch.cat([of[0][:, :, : p + 1], *[one[:, :, p : p + 1] for one in of[1:]]], 2)
            for of in (keys, values)
        )
        weights = torch.softmax(scale * query[:, :, p : p + 1] @ seen.mT, -1)
        rows.append(weights @ said)
    return torch.cat(rows, 2)


@pytest.mark.parametrize("steps", [2, 4])
@pytest.mark.parametrize("scale", [8**-0.5, 0.7])
def test_output_and_gradients_are_those_of_softmax(steps: int, scale: float) -> None:
    given = some(1 + 2 * steps)
    (grad,) = some(1, seed=1)

    def run(
        attend: Callable[..., Tensor], dtype: torch.dtype
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        leaves = [one.to(dtype).requires_grad_() for one in given]
        keys, values = leaves[1 : 1 + steps], leaves[1 + steps :]
        out = attend(leaves[0], keys, values, scale)
        return out, torch.autograd.grad(out, leaves, grad.to(dtype))

    found, slopes = run(lambda q, k, v, s: own_steps(q, (*k,), (*v,), s), torch.float32)
    wanted, wanted_slopes = run(by_rows, torch.float64)
    # f32 sums of some 20 terms of size about 1, in the exponent up to 8.
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=5e-6)
    for place, (one, other) in enumerate(zip(slopes, wanted_slopes, strict=True)):
        assert (one.double() - other).abs().max() < 2e-5, f"gradient of input {place}"


def test_under_autocast_it_is_bf16_of_the_same() -> None:
    query, *rest = some(5)
    with torch.autocast("cpu", torch.bfloat16):
        found = own_steps(query, (*rest[:2],), (*rest[2:],), 8**-0.5)
    assert found.dtype == torch.bfloat16
    wanted = by_rows(query, rest[:2], rest[2:], 8**-0.5)
    # bf16 keeps 8 bits: logits up to about 8 are off by 2**-6 at most.
    assert (found.float() - wanted).abs().max() < 0.1


@pytest.mark.parametrize("make", EVERY_FAMILY)
def test_chains_without_masks_equal_decode_rounds(
    make: Callable[[], TinyModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nets.own_steps, "LEAST", 2)
    model = make()
    shared = build_shared(*model, device="cpu", dtype=torch.float32)
    draft = build_draft(*model, shared, RAW)
    generator = torch.Generator().manual_seed(5)
    ids_BT = torch.randint(model.arch.vocab_size, (2, 11), generator=generator)
    hidden_BTH = torch.randn(2, 11, model.arch.hidden_size, generator=generator)
    length_B, steps = torch.tensor([11, 7]), 4
    assert nets.chain._seen(torch.arange(11), None, steps) is None
    with torch.no_grad():
        found = list(unroll_exact(draft, ids_BT, length_B, hidden_BTH, steps))
    for b, length in enumerate(length_B.tolist()):
        rounds = all_rounds(
            ids_BT[b, :length].tolist(),
            hidden_BTH[b, :length].double().numpy(),
            steps,
            doubles(model),
            plain_of(model),
        )
        for (start, step), wanted in rounds.items():
            row = found[step - 1].output_BTH[b, start].double().numpy()
            assert abs(row - wanted).max() < 1e-5, f"window {b}, {start}, {step}"


def test_narrow_windows_and_cards_keep_the_mask() -> None:
    cpu = torch.device("cpu")
    assert merges(LEAST, cpu)
    assert not merges(LEAST - 1, cpu)
    assert not merges(LEAST, torch.device("cuda"))
