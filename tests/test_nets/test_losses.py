"""tail_kl against its definition in f64, its closed-form gradient against differences."""

import math

import pytest
import torch
from torch import Tensor

from nets.losses import tail_gradient_, tail_kl, tail_terms_
from tests.oracles.losses import tail_kl_row, tail_kl_slope

torch.set_num_threads(1)


def trunk_top(seed: int, rows: int, vocab: int, k: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    p_RV = (3 * torch.randn(rows, vocab, generator=generator)).softmax(-1)
    p_RK, id_RK = p_RV.topk(k)
    return id_RK, p_RK


def draft_logits(seed: int, rows: int, vocab: int) -> Tensor:
    return 4 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))


def test_loss_of_each_row_is_the_definition() -> None:
    id_RK, p_RK = trunk_top(1, rows=6, vocab=40, k=5)
    z_RV = draft_logits(2, rows=6, vocab=40)
    expected = [
        tail_kl_row(z, i, p)
        for z, i, p in zip(z_RV.tolist(), id_RK.tolist(), p_RK.tolist(), strict=True)
    ]
    # f32 sums of about 40 terms of size ≤ 10: some 1e-6.
    assert tail_kl(z_RV, id_RK, p_RK).tolist() == pytest.approx(expected, abs=1e-5)
    assert tail_terms_(z_RV, id_RK, p_RK).loss_R.tolist() == pytest.approx(
        expected, abs=1e-5
    )


def test_gradient_is_the_slope_of_the_definition() -> None:
    id_RK, p_RK = trunk_top(3, rows=2, vocab=12, k=3)
    z_RV = draft_logits(4, rows=2, vocab=12)
    expected = [
        [tail_kl_slope(z, i, p, token) for token in range(12)]
        for z, i, p in zip(z_RV.tolist(), id_RK.tolist(), p_RK.tolist(), strict=True)
    ]
    terms = tail_terms_(z_RV, id_RK, p_RK)
    gradient_RV = tail_gradient_(z_RV, terms, id_RK, p_RK)
    # Entries are at most 1; f32 softmax and P/Q with Q about 0.1.
    torch.testing.assert_close(gradient_RV, torch.tensor(expected), atol=3e-6, rtol=0)


def test_loss_by_hand() -> None:
    # q = (1/2, 1/4, 1/8, 1/8); the trunk keeps tokens 1 and 0 at 1/2 and 1/4: P = 1/4.
    z_RV = torch.tensor([[4.0, 2.0, 1.0, 1.0]]).log()
    id_RK, p_RK = torch.tensor([[1, 0]]), torch.tensor([[0.5, 0.25]])
    # 1/2 log 2 + 1/4 log 1/2 + 1/4 log (1/4 / 1/4)
    assert tail_kl(z_RV, id_RK, p_RK).item() == pytest.approx(0.25 * math.log(2), abs=1e-7)


def test_the_trunk_itself_has_no_loss_and_no_gradient() -> None:
    z_RV = draft_logits(5, rows=3, vocab=20)
    p_RK, id_RK = z_RV.softmax(-1).topk(4)
    terms = tail_terms_(z_RV, id_RK, p_RK)
    gradient_RV = tail_gradient_(z_RV, terms, id_RK, p_RK)
    # P = 1 − Σp keeps about 6e-8 of absolute error, divided here by Q of about 0.05.
    assert terms.loss_R.abs().max() < 1e-6
    assert gradient_RV.abs().max() < 1e-6


@pytest.mark.parametrize("kept", [[1.0, 0.0], [0.75, 0.25 + 1e-7]])
def test_no_mass_left_outside_is_no_tail_term(kept: list[float]) -> None:
    z_RV = torch.tensor([[0.0, 0.0, 0.0, 0.0]])
    terms = tail_terms_(z_RV, torch.tensor([[2, 0]]), torch.tensor([kept]))
    expected = math.log(4) + sum(p * math.log(p) for p in kept if p > 0)
    assert terms.loss_R.item() == pytest.approx(expected, abs=1e-6)
    assert terms.tail_ratio_R.item() == 0.0


def test_a_sure_draft_keeps_the_digits_of_its_tail() -> None:
    # Q is 3e-14: as 1 − Σq it would be 0 in f32, and the loss infinite.
    z_RV = torch.tensor([[0.0, -31.0]])
    id_RK, p_RK = torch.tensor([[0]]), torch.tensor([[0.5]])
    terms = tail_terms_(z_RV, id_RK, p_RK)
    assert terms.loss_R.item() == pytest.approx(31 / 2 - math.log(2), rel=1e-6)
