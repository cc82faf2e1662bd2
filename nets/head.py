"""The frozen head in slices of rows: a trunk's top-k, a draft's loss, gradient, measure.

No array of rows × vocabulary outlives a slice. Autocast is ignored: the GEMM runs in the
head's own type, softmax and loss in f32 (performance.md b, c).
Axes: R rows (r of one slice), H hidden, V vocabulary, K kept tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nets.buffers import WideBuffers, rows_per_slice, wide_buffers
from nets.candidates import TopK, candidates, exact_top
from nets.losses import tail_gradient_, tail_terms_


@dataclass(frozen=True)
class MeasuredRows:
    """A draft's four best tokens of each row, and the row's `tail_kl` from the trunk."""

    top: TopK
    kl_R: Tensor


@dataclass(frozen=True)
class LogitSlice:
    """Logits of the rows `at` in f32, in memory that the next slice overwrites."""

    at: slice
    normed_rH: Tensor
    logits_rV: Tensor
    buffers: WideBuffers


def topk_rows(normed_RH: Tensor, head_VH: Tensor, k: int, budget_bytes: int) -> TopK:
    """Top-k tokens of each row under the full softmax, with the row's log-sum-exp.

    With a bf16 head the candidates of a bf16 GEMM are rescored in f32, so order and
    probabilities are those of exact products. `k` is at most V.
    """
    parts = []
    with torch.no_grad(), torch.autocast(normed_RH.device.type, enabled=False):
        for part in logit_slices(normed_RH, head_VH, budget_bytes):
            found = candidates(part.logits_rV, head_VH, k)
            q_rV = torch.softmax(part.logits_rV, -1, out=part.logits_rV)
            best_q_r = q_rV.gather(1, found.id_rM[:, :1]).squeeze(1)
            logsumexp_r = found.z_rM[:, 0] - best_q_r.log()
            parts.append(exact_top(part.normed_rH, head_VH, found, logsumexp_r, k))
    return _joined(parts, k, normed_RH.device)


def measure_rows(
    normed_RH: Tensor,
    head_VH: Tensor,
    topk_id_RK: Tensor,
    topk_p_RK: Tensor,
    budget_bytes: int,
) -> MeasuredRows:
    """Each row's four best tokens and its `tail_kl` from the trunk's top-k, in one pass."""
    parts, losses = [], [torch.zeros(0, device=normed_RH.device)]
    best = min(4, head_VH.shape[0])
    with torch.no_grad(), torch.autocast(normed_RH.device.type, enabled=False):
        for part in logit_slices(normed_RH, head_VH, budget_bytes):
            found = candidates(part.logits_rV, head_VH, best)
            terms = tail_terms_(part.logits_rV, topk_id_RK[part.at], topk_p_RK[part.at])
            losses.append(terms.loss_R)
            parts.append(exact_top(part.normed_rH, head_VH, found, terms.logsumexp_R, best))
    return MeasuredRows(_joined(parts, best, normed_RH.device), torch.cat(losses))


def fused_tail_kl(
    normed_RH: Tensor,
    head_VH: Tensor,
    topk_id_RK: Tensor,
    topk_p_RK: Tensor,
    budget_bytes: int,
) -> Tensor:
    """Sum of `tail_kl` over the rows: an f64 scalar to scale and send backward.

    Loss and gradient are formed together, slice by slice, in the forward pass; what is kept
    is the rows' gradient [R, H]. The head gets none: it is frozen. `topk_id_RK` is int64.
    """
    # torch leaves `apply` untyped.
    loss: Tensor = _FusedTailKl.apply(  # type: ignore[no-untyped-call]
        normed_RH, head_VH, topk_id_RK, topk_p_RK, budget_bytes
    )
    return loss


class _FusedTailKl(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # torch has no type for the context of a custom function
        normed_RH: Tensor,
        head_VH: Tensor,
        topk_id_RK: Tensor,
        topk_p_RK: Tensor,
        budget_bytes: int,
    ) -> Tensor:
        total = torch.zeros((), dtype=torch.float64, device=normed_RH.device)
        grad_RH = torch.empty_like(normed_RH)
        with torch.autocast(normed_RH.device.type, enabled=False):
            for part in logit_slices(normed_RH, head_VH, budget_bytes):
                id_rK, p_rK = topk_id_RK[part.at], topk_p_RK[part.at]
                terms = tail_terms_(part.logits_rV, id_rK, p_rK)
                total += terms.loss_R.sum(dtype=torch.float64)
                grad_rV = tail_gradient_(part.logits_rV, terms, id_rK, p_rK)
                if part.buffers.low_RV is not None:
                    grad_rV = part.buffers.low_RV.copy_(grad_rV)
                grad_RH[part.at] = torch.mm(grad_rV, head_VH)
        ctx.save_for_backward(grad_RH)
        return total

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor, None, None, None, None]:
        (grad_RH,) = ctx.saved_tensors
        return grad_RH * grad_loss, None, None, None, None


def logit_slices(
    normed_RH: Tensor, head_VH: Tensor, budget_bytes: int
) -> Iterator[LogitSlice]:
    """Logits of the rows, slice by slice in the thread's buffers; not under autocast."""
    most = rows_per_slice(head_VH, budget_bytes)
    for start in range(0, len(normed_RH), most):
        normed_rH = normed_RH[start : start + most]
        buffers = wide_buffers(len(normed_rH), head_VH)
        wide_rV, low_rV = buffers.wide_RV, buffers.low_RV
        if low_rV is None:
            torch.mm(normed_rH.float(), head_VH.T, out=wide_rV)
        else:
            wide_rV.copy_(torch.mm(normed_rH.to(head_VH.dtype), head_VH.T, out=low_rV))
        yield LogitSlice(slice(start, start + len(normed_rH)), normed_rH, wide_rV, buffers)


def _joined(parts: Sequence[TopK], k: int, device: torch.device) -> TopK:
    no_id_RK = torch.zeros((0, k), dtype=torch.int32, device=device)
    nothing = TopK(no_id_RK, no_id_RK.float(), torch.zeros(0, device=device))
    all_parts = [nothing, *parts]
    return TopK(
        torch.cat([part.id_RK for part in all_parts]),
        torch.cat([part.p_RK for part in all_parts]),
        torch.cat([part.logsumexp_R for part in all_parts]),
    )
