"""The sliced head against autograd over full logits and against products in f64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from conf.training import Loss
from nets import buffers, losses
from nets.buffers import rows_per_block, rows_per_slice, wide_buffers
from nets.candidates import exact_logits, largest
from nets.head import fused_loss, measure_rows, topk_rows
from tests.oracles.losses import tail_kl_row

torch.set_num_threads(1)

ROWS, HIDDEN, VOCAB, KEPT = 300, 24, 97, 7
ONE_SLICE, SLICES_OF_128 = 1 << 28, 1
LOSSES: dict[Loss, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "tail_kl": losses.tail_kl,
    "topk_kl": losses.topk_kl,
    "tv": losses.tv,
    "lk": losses.lk,
}


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def case(rows: int = ROWS) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    p_RK, id_RK = (2 * numbers(3, rows, VOCAB)).softmax(-1).topk(KEPT)
    return numbers(1, rows, HIDDEN), numbers(2, VOCAB, HIDDEN), id_RK, p_RK


@pytest.fixture(params=[False, True], ids=["whole slices", "blocks of 8 rows"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(buffers, "BLOCK_BYTES", 0)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("budget", [ONE_SLICE, SLICES_OF_128])
@pytest.mark.parametrize("loss", LOSSES)
def test_fused_loss_and_gradient_are_those_of_full_logits(loss: Loss, budget: int) -> None:
    normed_RH, head_VH, id_RK, p_RK = case()
    full_RH = normed_RH.clone().requires_grad_()
    full = LOSSES[loss](full_RH @ head_VH.T, id_RK, p_RK).sum()
    torch.autograd.backward(full * -3.5)
    fused_RH = normed_RH.clone().requires_grad_()
    fused = fused_loss(loss, fused_RH, head_VH, id_RK, p_RK, budget)
    torch.autograd.backward(fused * -3.5)
    # One f32 sum of 300 losses of about 10 on either side: 300 · 2**-24 relative at worst.
    assert fused.item() == pytest.approx(full.item(), rel=2e-5)
    assert fused_RH.grad is not None
    assert full_RH.grad is not None
    # Gradients reach about 20; P/Q divides an f32 by masses of about 0.05.
    torch.testing.assert_close(fused_RH.grad, full_RH.grad, atol=1e-4, rtol=1e-4)


def test_a_row_without_slope_outside_the_top_k_has_that_inside() -> None:
    # q = (1/2, 1/4, 1/4) and P = Q = 1/4 to the bit: outside it is q (1 − P/Q) = 0.
    z_1V = torch.tensor([[2.0, 1.0, 1.0]]).log().requires_grad_()
    id_RK, p_RK = torch.tensor([[0, 1]]), torch.tensor([[0.25, 0.5]])
    torch.autograd.backward(fused_loss("tail_kl", z_1V, torch.eye(3), id_RK, p_RK, 1))
    assert z_1V.grad is not None
    # q − tp; f32 of numbers of about 1.
    assert z_1V.grad.tolist() == [pytest.approx([0.25, -0.25, 0.0], abs=1e-6)]


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("loss", LOSSES)
def test_bf16_head_gives_the_gradient_within_its_precision_even_under_autocast(
    loss: Loss,
) -> None:
    normed_RH, head_VH, id_RK, p_RK = case()
    normed_RH, head_VH = normed_RH.bfloat16(), head_VH.bfloat16()
    exact_RH = normed_RH.double().requires_grad_()
    exact = LOSSES[loss](exact_RH @ head_VH.double().T, id_RK, p_RK).sum()
    torch.autograd.backward(exact)
    fused_RH = normed_RH.float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        fused = fused_loss(loss, fused_RH, head_VH, id_RK, p_RK, SLICES_OF_128)
    torch.autograd.backward(fused)
    assert exact_RH.grad is not None
    assert fused_RH.grad is not None
    off = (fused_RH.grad - exact_RH.grad).norm() / exact_RH.grad.norm()
    # bf16 logits, their gradients and the product are each rounded to 2**-9.
    assert fused.item() == pytest.approx(exact.item(), rel=2e-3)
    # The slope of tv jumps where q passes tp; some rounded logits are on the other side.
    assert off.item() < (2**-5 if loss == "tv" else 3 * 2**-8)


def test_no_gradient_reaches_the_head() -> None:
    normed_RH, head_VH, id_RK, p_RK = case(rows=5)
    loss = fused_loss(
        "tail_kl", normed_RH.requires_grad_(), head_VH.requires_grad_(), id_RK, p_RK, 1
    )
    torch.autograd.backward(loss)
    assert head_VH.grad is None


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("budget", [ONE_SLICE, SLICES_OF_128])
def test_topk_is_that_of_the_exact_product(dtype: torch.dtype, budget: int) -> None:
    normed_RH, head_VH, *_ = case()
    normed_RH, head_VH = normed_RH.to(dtype), head_VH.to(dtype)
    z_RV = normed_RH.double() @ head_VH.double().T
    exact_p_RK, exact_id_RK = z_RV.softmax(-1).topk(KEPT)
    top = topk_rows(normed_RH, head_VH, KEPT, budget)
    assert top.id_RK.dtype == torch.int32
    assert top.id_RK.tolist() == exact_id_RK.tolist()
    # bf16: the candidates are exact, the rest of the sum has logits rounded to 2**-9 of 10.
    off = 1e-6 if dtype == torch.float32 else 1e-3
    torch.testing.assert_close(top.p_RK.double(), exact_p_RK, atol=off, rtol=10 * off)
    torch.testing.assert_close(
        top.logsumexp_R.double(), z_RV.logsumexp(-1), atol=10 * off, rtol=0
    )


def test_bf16_rounding_alone_would_pick_another_token() -> None:
    # 32.0078 rounds to 32 in bf16, whose step is 1/4 there.
    head_VH = torch.tensor([[1.0, 0.0], [1.0, 0.0078125], [0.0, 0.0]]).bfloat16()
    normed_RH = torch.tensor([[32.0, 1.0]]).bfloat16()
    assert (normed_RH @ head_VH.T).argmax().item() == 0
    assert topk_rows(normed_RH, head_VH, 1, 1).id_RK.tolist() == [[1]]


@pytest.mark.usefixtures("blocks")
def test_measured_rows_are_top_tokens_and_loss() -> None:
    normed_RH, head_VH, id_RK, p_RK = case(rows=150)
    found = measure_rows(normed_RH, head_VH, id_RK, p_RK, SLICES_OF_128)
    z_RV = normed_RH.double() @ head_VH.double().T
    exact_p_R4, exact_id_R4 = z_RV.softmax(-1).topk(4)
    assert found.top.id_RK.tolist() == exact_id_R4.tolist()
    torch.testing.assert_close(found.top.p_RK.double(), exact_p_R4, atol=1e-6, rtol=1e-5)
    expected = [
        tail_kl_row(z, i, p)
        for z, i, p in zip(z_RV.tolist(), id_RK.tolist(), p_RK.tolist(), strict=True)
    ]
    assert found.kl_R.tolist() == pytest.approx(expected, abs=2e-5)


def test_no_rows_are_no_work() -> None:
    normed_RH, head_VH, id_RK, p_RK = case(rows=0)
    assert fused_loss("tail_kl", normed_RH, head_VH, id_RK, p_RK, 1).item() == 0.0
    found = measure_rows(normed_RH, head_VH, id_RK, p_RK, 1)
    assert found.top.id_RK.shape == (0, 4)
    assert found.kl_R.shape == (0,)


def test_slices_keep_to_the_budget_in_steps_of_32() -> None:
    head_VH = torch.empty(49_152, 1, dtype=torch.bfloat16)
    # A block is 21 rows of 4 bytes a token; 256 MiB less that, / (49152 · 2), is 2688.7.
    assert rows_per_block(head_VH) == 21
    assert rows_per_slice(head_VH, 256 << 20) == 2688
    assert rows_per_slice(head_VH, 1) == 128
    assert rows_per_slice(head_VH, 1 << 40) == 4096
    assert rows_per_slice(head_VH.float(), 256 << 20) == 1344
    # An accelerator has the whole slice in f32 beside it: 256 MiB / (49152 · 6) is 910.
    assert rows_per_slice(head_VH.to("meta"), 256 << 20) == 896


def test_buffers_are_reused_until_they_no_longer_fit() -> None:
    head_VH = torch.zeros(11, 2)
    first = wide_buffers(20, head_VH).product_RV
    assert wide_buffers(7, head_VH).product_RV.data_ptr() == first.data_ptr()
    assert wide_buffers(7, head_VH).product_RV.shape == (7, 11)
    assert wide_buffers(7, torch.zeros(12, 2)).product_RV.shape == (7, 12)
    low = wide_buffers(7, head_VH.bfloat16())
    assert low.wide_rV is not None
    assert (low.product_RV.dtype, low.wide_rV.dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize(
    ("vocab", "count"),
    [(64 * 4 * 5, 5), (64 * 37, 9), (64 * 37 + 1, 9), (64 * 4 * 5 - 64, 5), (7, 7)],
    ids=["just enough blocks", "blocks", "ragged vocabulary", "few blocks", "all of it"],
)
def test_the_largest_logits_are_those_of_a_full_sort(vocab: int, count: int) -> None:
    logits_RV = numbers(4, 33, vocab)
    logits_RV[0, :vocab] = torch.arange(vocab).float()  # the best all in the last block
    logits_RV[1, 0] = float("inf")
    found = largest(logits_RV, count)
    for row in range(33):
        order = sorted(range(vocab), key=lambda v: -float(logits_RV[row, v]))[:count]
        assert found.id_rM[row].tolist() == order, f"row {row}"
        assert found.z_rM[row].tolist() == [float(logits_RV[row, v]) for v in order]


def test_exact_logits_are_the_products_whatever_the_slices() -> None:
    rows, kept, hidden = 700, 5, 300  # more than one slice of RESCORE_BYTES
    normed_RH, head_VH = numbers(1, rows, hidden), numbers(2, 40, hidden).bfloat16()
    id_RM = torch.randint(40, (rows, kept), generator=torch.Generator().manual_seed(3))
    found_RM = exact_logits(normed_RH, head_VH, id_RM)
    wanted_RV = normed_RH.double() @ head_VH.double().T
    # f32 sums of 300 products of about 1: 300 · 2**-24 of their sizes' sum, about 200.
    assert (found_RM - wanted_RV.gather(1, id_RM)).abs().max() < 1e-4
    assert exact_logits(normed_RH[:0], head_VH, id_RM[:0]).shape == (0, kept)
