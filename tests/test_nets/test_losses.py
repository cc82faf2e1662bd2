"""The losses against their definitions in f64, their gradients against differences."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from conf.training import Loss
from nets import losses
from nets.losses import hard_targets, masses_, row_loss, slopes, tail_kl, topk_kl, tv
from tests.oracles.losses import (
    RowLoss,
    hard_row,
    lk_row,
    lk_share,
    mixed_row,
    slope,
    tail_kl_row,
    topk_kl_row,
    tv_row,
)

torch.set_num_threads(1)

FullLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
LOSSES: dict[Loss, tuple[FullLoss, RowLoss]] = {
    "tail_kl": (losses.tail_kl, tail_kl_row),
    "topk_kl": (losses.topk_kl, topk_kl_row),
    "tv": (losses.tv, tv_row),
    "lk": (losses.lk, lk_row),
}
each_loss = pytest.mark.parametrize("loss", LOSSES)


def trunk_top(seed: int, rows: int, vocab: int, k: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    p_RV = (3 * torch.randn(rows, vocab, generator=generator)).softmax(-1)
    p_RK, id_RK = p_RV.topk(k)
    return id_RK, p_RK


def draft_logits(seed: int, rows: int, vocab: int) -> Tensor:
    return 4 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))


def near_logits(seed: int, rows: int, vocab: int) -> Tensor:
    """A draft that knows the trunk of `trunk_top(seed, …)`: overlaps of about 0.7."""
    generator = torch.Generator().manual_seed(seed)
    trunk_RV = 3 * torch.randn(rows, vocab, generator=generator)
    return trunk_RV + torch.randn(rows, vocab, generator=generator)


def closed_gradient(loss: Loss, z_RV: Tensor, id_RK: Tensor, p_RK: Tensor) -> Tensor:
    """d loss / d logits as the fused head forms it."""
    q_RV = z_RV.clone()
    found = slopes(loss, p_RK, masses_(q_RV, id_RK))
    return (q_RV * found.outside_R[:, None]).scatter(1, id_RK, found.inside_RK)


@each_loss
@pytest.mark.parametrize("draft", [draft_logits, near_logits])
def test_loss_of_each_row_is_the_definition(
    loss: Loss, draft: Callable[[int, int, int], Tensor]
) -> None:
    full, row = LOSSES[loss]
    id_RK, p_RK = trunk_top(1, rows=6, vocab=40, k=5)
    z_RV = draft(1, 6, 40)
    expected = [
        row(z, i, p)
        for z, i, p in zip(z_RV.tolist(), id_RK.tolist(), p_RK.tolist(), strict=True)
    ]
    # f32 sums of about 40 terms of size ≤ 10: some 1e-6.
    assert full(z_RV, id_RK, p_RK).tolist() == pytest.approx(expected, abs=1e-5)
    found_R = row_loss(loss, p_RK, masses_(z_RV, id_RK))
    assert found_R.tolist() == pytest.approx(expected, abs=1e-5)


@each_loss
def test_gradient_is_the_slope_of_the_definition(loss: Loss) -> None:
    id_RK, p_RK = trunk_top(3, rows=3, vocab=12, k=3)
    z_RV = near_logits(3, rows=3, vocab=12)
    z_RV[0] = draft_logits(4, rows=1, vocab=12)[0]
    expected = []
    for z, ids, p in zip(z_RV.tolist(), id_RK.tolist(), p_RK.tolist(), strict=True):
        row = LOSSES[loss][1]
        if loss == "lk":  # its share of KL is held
            row = partial(mixed_row, share=lk_share(z, ids, p))
        expected.append([slope(row, z, ids, p, token) for token in range(12)])
    # Entries are at most 1; f32 softmax and P/Q with Q about 0.1.
    torch.testing.assert_close(
        closed_gradient(loss, z_RV, id_RK, p_RK), torch.tensor(expected), atol=3e-6, rtol=0
    )


@each_loss
def test_gradient_is_that_of_autograd(loss: Loss) -> None:
    id_RK, p_RK = trunk_top(5, rows=50, vocab=64, k=8)
    z_RV = near_logits(5, rows=50, vocab=64)
    full_RV = z_RV.clone().requires_grad_()
    torch.autograd.backward(LOSSES[loss][0](full_RV, id_RK, p_RK).sum())
    assert full_RV.grad is not None
    torch.testing.assert_close(
        closed_gradient(loss, z_RV, id_RK, p_RK), full_RV.grad, atol=3e-6, rtol=0
    )


def test_losses_by_hand() -> None:
    # q = (1/2, 1/4, 1/8, 1/8); the trunk keeps tokens 1 and 0 at 1/2 and 1/4: P = 1/4.
    z_RV = torch.tensor([[4.0, 2.0, 1.0, 1.0]]).log()
    id_RK, p_RK = torch.tensor([[1, 0]]), torch.tensor([[0.5, 0.25]])
    # 1/2 log 2 + 1/4 log 1/2, and + 1/4 log (1/4 / 1/4)
    kl = 0.25 * math.log(2)
    assert tail_kl(z_RV, id_RK, p_RK).item() == pytest.approx(kl, abs=1e-7)
    assert topk_kl(z_RV, id_RK, p_RK).item() == pytest.approx(kl, abs=1e-7)
    # Tokens 1 and 0 overlap in 1/4 each.
    assert tv(z_RV, id_RK, p_RK).item() == pytest.approx(0.5, abs=1e-7)
    share = math.exp(-1.5)
    mixed = share * kl + (1 - share) * 0.5
    assert losses.lk(z_RV, id_RK, p_RK).item() == pytest.approx(mixed, abs=1e-7)


@pytest.mark.parametrize("loss", ["tail_kl", "tv", "lk"])
def test_never_negative(loss: Loss) -> None:
    id_RK, p_RK = trunk_top(6, rows=400, vocab=30, k=6)
    for z_RV in (draft_logits(7, 400, 30), near_logits(6, 400, 30)):
        # By rounding only: sums of 30 terms of at most 1.
        assert LOSSES[loss][0](z_RV, id_RK, p_RK).min() > -2e-6


def test_topk_kl_falls_to_its_bound_where_the_draft_leaves_no_tail() -> None:
    # Σtp = 3/4: at q = tp/Σtp the loss is 3/4 log 3/4, and its slope is 0.
    id_RK, p_RK = torch.tensor([[2, 0]]), torch.tensor([[0.5, 0.25]])
    z_RV = torch.tensor([[1 / 3, 1e-12, 2 / 3]]).log()
    expected = 0.75 * math.log(0.75)
    assert topk_kl(z_RV, id_RK, p_RK).item() == pytest.approx(expected, abs=1e-6)
    assert closed_gradient("topk_kl", z_RV, id_RK, p_RK).abs().max() < 1e-7


def test_the_trunk_itself_has_no_loss_and_no_gradient() -> None:
    z_RV = draft_logits(5, rows=3, vocab=20)
    p_RK, id_RK = z_RV.softmax(-1).topk(4)
    # P = 1 − Σp keeps about 6e-8 of absolute error, divided here by Q of about 0.05.
    assert tail_kl(z_RV, id_RK, p_RK).abs().max() < 1e-6
    assert closed_gradient("tail_kl", z_RV, id_RK, p_RK).abs().max() < 1e-6


@pytest.mark.parametrize("kept", [[1.0, 0.0], [0.75, 0.25 + 1e-7]])
def test_no_mass_left_outside_is_no_tail_term(kept: list[float]) -> None:
    id_RK, p_RK = torch.tensor([[2, 0]]), torch.tensor([kept])
    masses = masses_(torch.tensor([[0.0, 0.0, 0.0, 0.0]]), id_RK)
    expected = math.log(4) + sum(p * math.log(p) for p in kept if p > 0)
    assert row_loss("tail_kl", p_RK, masses).item() == pytest.approx(expected, abs=1e-6)
    assert slopes("tail_kl", p_RK, masses).outside_R.item() == 1.0


def test_a_sure_draft_keeps_the_digits_of_its_tail() -> None:
    # Q is 3e-14: as 1 − Σq it would be 0 in f32, and the loss infinite.
    z_RV = torch.tensor([[0.0, -31.0]])
    id_RK, p_RK = torch.tensor([[0]]), torch.tensor([[0.5]])
    expected = 31 / 2 - math.log(2)
    assert tail_kl(z_RV, id_RK, p_RK).item() == pytest.approx(expected, rel=1e-6)
    masses = masses_(z_RV, id_RK)
    assert row_loss("tail_kl", p_RK, masses).item() == pytest.approx(expected, rel=1e-6)


def test_a_kept_token_without_mass_keeps_its_log() -> None:
    # q = (1/2, e^-200 / 2, 1/2): in f32 the second is 0, and its log must not follow.
    masses = masses_(torch.tensor([[0.0, -200.0, 0.0]]), torch.tensor([[1, 0]]))
    assert masses.logsumexp_R.item() == pytest.approx(math.log(2), abs=1e-6)
    log_q = [-200 - math.log(2), -math.log(2)]
    assert masses.log_q_RK[0].tolist() == pytest.approx(log_q, abs=2e-5)
    assert masses.tail_q_R.item() == pytest.approx(0.5, abs=1e-7)


TINY = torch.finfo(torch.float32).tiny


def test_mass_below_f32_is_its_least_number_not_none() -> None:
    # e^-200 is 0 in f32. Kept, its log is that of the least; outside, the loss is finite.
    far_RV, id_RK = torch.tensor([[0.0, -200.0]]), torch.tensor([[1]])
    assert masses_(far_RV, id_RK).log_q_RK.item() == pytest.approx(math.log(TINY))
    masses = masses_(torch.tensor([[0.0, -200.0]]), torch.tensor([[0]]))
    half_RK = torch.tensor([[0.5]])
    expected = -math.log(2) - 0.5 * math.log(TINY)
    assert row_loss("tail_kl", half_RK, masses).item() == pytest.approx(expected, rel=1e-6)
    assert slopes("tail_kl", half_RK, masses).outside_R.item() == pytest.approx(-0.5 / TINY)


def test_a_tie_has_the_slope_of_the_trunk_s_side_none() -> None:
    # q = tp = 1/2 exactly: the overlap is tp, which no logit moves.
    z_RV = torch.zeros(1, 2, requires_grad=True)
    id_RK, p_RK = torch.tensor([[0]]), torch.tensor([[0.5]])
    torch.autograd.backward(tv(z_RV, id_RK, p_RK).sum())
    assert z_RV.grad is not None
    assert z_RV.grad.tolist() == [[0.0, 0.0]]
    assert closed_gradient("tv", torch.zeros(1, 2), id_RK, p_RK).tolist() == [[0.0, 0.0]]


@each_loss
def test_narrow_numbers_are_widened_first(loss: Loss) -> None:
    id_RK, p_RK = trunk_top(9, rows=20, vocab=40, k=5)
    z_RV, p_RK = near_logits(9, 20, 40).bfloat16(), p_RK.bfloat16()
    full, wide = LOSSES[loss][0], (z_RV.float(), id_RK, p_RK.float())
    assert torch.equal(full(z_RV, id_RK, p_RK), full(*wide))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_hard_targets_move_mass_to_the_trunks_own_token(share: float) -> None:
    _, p_RK = trunk_top(8, rows=5, vocab=20, k=4)
    before_RK = p_RK.clone()
    for found, row in zip(hard_targets(p_RK, share).tolist(), p_RK.tolist(), strict=True):
        assert found == pytest.approx(hard_row(row, share), abs=1e-7)
    assert torch.equal(p_RK, before_RK)


def test_hard_targets_by_hand() -> None:
    p_RK = torch.tensor([[0.5, 0.25]])
    # Half of 3/4 on top of half of 1/2; half of 1/4.
    assert hard_targets(p_RK, 0.5).tolist() == [[0.625, 0.125]]
