"""The frozen head in slices of rows: a trunk's top-k, a draft's loss, gradient, measure.

No array of rows × vocabulary outlives a slice. Autocast is ignored: the GEMM runs in the
head's own type, softmax and loss in f32.
Axes: R rows (r of one slice), H hidden, V vocabulary, K kept tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conf.training import Loss
from nets.buffers import rows_per_block, rows_per_slice, wide_buffers
from nets.candidates import TopK, candidates, exact_top
from nets.losses import Slopes, masses_, row_loss, slopes

LEAST_SCALE = 1e-20  # slopes are at most 1, and 1e20 is still far from the largest f32


@dataclass(frozen=True)
class MeasuredRows:
    """A draft's four best tokens of each row, and the row's `tail_kl` from the trunk.

    `tempered` is q of the trunk's kept tokens at each temperature asked for, f32 [R, K].
    """

    top: TopK
    kl_R: Tensor
    tempered: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class LogitSlice:
    """Logits of the rows `at` in f32, in memory that the next slice overwrites."""

    at: slice
    normed_rH: Tensor
    logits_rV: Tensor


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
    temperatures: Sequence[float] = (),
) -> MeasuredRows:
    """Each row's four best tokens and its `tail_kl` from the trunk's top-k, in one pass.

    `temperatures` are those above 0 at which the draft's own q is read too.
    """
    parts, losses = [], [torch.zeros(0, device=normed_RH.device)]
    tempered: list[list[Tensor]] = [[topk_p_RK[:0].float()] for _ in temperatures]
    best = min(4, head_VH.shape[0])
    with torch.no_grad(), torch.autocast(normed_RH.device.type, enabled=False):
        for part in logit_slices(normed_RH, head_VH, budget_bytes):
            found = candidates(part.logits_rV, head_VH, best)
            for temperature, read in zip(temperatures, tempered, strict=True):
                q_rV = torch.softmax(part.logits_rV / temperature, -1)
                read.append(q_rV.gather(1, topk_id_RK[part.at]))
            masses = masses_(part.logits_rV, topk_id_RK[part.at])
            losses.append(row_loss("tail_kl", topk_p_RK[part.at], masses))
            parts.append(
                exact_top(part.normed_rH, head_VH, found, masses.logsumexp_R, best)
            )
    return MeasuredRows(
        _joined(parts, best, normed_RH.device),
        torch.cat(losses),
        tuple(torch.cat(read) for read in tempered),
    )


def fused_loss(
    loss: Loss,
    normed_RH: Tensor,
    head_VH: Tensor,
    topk_id_RK: Tensor,
    topk_p_RK: Tensor,
    budget_bytes: int,
) -> Tensor:
    """Sum of a loss of `nets.losses` over the rows: an f64 scalar to send backward.

    Loss and gradient are formed together, slice by slice, in the forward pass; what is kept
    is the rows' gradient [R, H]. The head gets none: it is frozen. `topk_id_RK` is int64.
    """
    # torch leaves `apply` untyped.
    total: Tensor = _FusedLoss.apply(  # type: ignore[no-untyped-call]
        loss, normed_RH, head_VH, topk_id_RK, topk_p_RK, budget_bytes
    )
    return total


class _FusedLoss(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0913, PLR0917 — those of `fused_loss`, in their order
        ctx: Any,  # torch has no type for the context of a custom function
        loss: Loss,
        normed_RH: Tensor,
        head_VH: Tensor,
        topk_id_RK: Tensor,
        topk_p_RK: Tensor,
        budget_bytes: int,
    ) -> Tensor:
        total = torch.zeros((), dtype=torch.float64, device=normed_RH.device)
        grad_RH = torch.empty_like(normed_RH)
        with torch.autocast(normed_RH.device.type, enabled=False):
            for product in _products(normed_RH, head_VH, budget_bytes):
                scales = []
                for part in product.blocks():
                    id_rK, p_rK = topk_id_RK[part.at], topk_p_RK[part.at]
                    masses = masses_(part.logits_rV, id_rK)
                    total += row_loss(loss, p_rK, masses).sum(dtype=torch.float64)
                    scales.append(
                        _scaled_gradient_(part, slopes(loss, p_rK, masses), id_rK)
                    )
                    product.write(part)
                scaled_RH = torch.mm(product.product_RV, head_VH)
                grad_RH[product.at] = scaled_RH * torch.cat(scales)[:, None]
        ctx.save_for_backward(grad_RH)
        return total

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        (grad_RH,) = ctx.saved_tensors
        return None, grad_RH * grad_loss, None, None, None, None


def logit_slices(
    normed_RH: Tensor, head_VH: Tensor, budget_bytes: int
) -> Iterator[LogitSlice]:
    """Logits of the rows, some at a time in the thread's buffers; not under autocast."""
    for product in _products(normed_RH, head_VH, budget_bytes):
        yield from product.blocks()


@dataclass(frozen=True)
class _Product:
    """What one GEMM over the head gives for the rows `at`, in the head's own type."""

    at: slice
    normed_RH: Tensor
    product_RV: Tensor
    wide_rV: Tensor | None
    block: int

    def blocks(self) -> Iterator[LogitSlice]:
        """The rows' logits in f32, as many at a time as a cache holds."""
        for start in range(0, len(self.product_RV), self.block):
            logits_rV = self.product_RV[start : start + self.block]
            count = len(logits_rV)
            if self.wide_rV is not None:
                logits_rV = self.wide_rV[:count].copy_(logits_rV)
            first = self.at.start + start
            normed_rH = self.normed_RH[start : start + count]
            yield LogitSlice(slice(first, first + count), normed_rH, logits_rV)

    def write(self, part: LogitSlice) -> None:
        """Put what a block's logits have become in place of the product's rows."""
        if self.wide_rV is not None:
            start = part.at.start - self.at.start
            self.product_RV[start : start + len(part.logits_rV)] = part.logits_rV


def _products(normed_RH: Tensor, head_VH: Tensor, budget_bytes: int) -> Iterator[_Product]:
    most, block = rows_per_slice(head_VH, budget_bytes), rows_per_block(head_VH)
    for start in range(0, len(normed_RH), most):
        normed_rH = normed_RH[start : start + most]
        buffers = wide_buffers(len(normed_rH), head_VH)
        torch.mm(normed_rH.to(head_VH.dtype), head_VH.T, out=buffers.product_RV)
        at = slice(start, start + len(normed_rH))
        yield _Product(at, normed_rH, buffers.product_RV, buffers.wide_rV, block)


def _scaled_gradient_(part: LogitSlice, found: Slopes, topk_id_rK: Tensor) -> Tensor:
    """Turn a block's q, zero on the ids, into its gradient over the scale that comes back.

    The scale is the slope outside the top-k: dividing the few slopes inside by it spares a
    pass over the vocabulary. Where it is 0, one too small to matter stands for it.
    """
    outside_r = found.outside_R
    scale_r = torch.where(outside_r.abs() < LEAST_SCALE, LEAST_SCALE, outside_r)
    part.logits_rV.scatter_(1, topk_id_rK, found.inside_RK / scale_r[:, None])
    return scale_r


def _joined(parts: Sequence[TopK], k: int, device: torch.device) -> TopK:
    no_id_RK = torch.zeros((0, k), dtype=torch.int32, device=device)
    nothing = TopK(no_id_RK, no_id_RK.float(), torch.zeros(0, device=device))
    all_parts = [nothing, *parts]
    return TopK(
        torch.cat([part.id_RK for part in all_parts]),
        torch.cat([part.p_RK for part in all_parts]),
        torch.cat([part.logsumexp_R for part in all_parts]),
    )
