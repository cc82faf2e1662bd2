"""A row's best tokens among a whole vocabulary, and their exact logits.

Axes: R rows (r of one slice), H hidden, V vocabulary, K kept tokens, M candidates, N blocks
of the vocabulary, G tokens of a block.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# A bf16 logit is off by up to 2**-9 of itself, so the order near the k-th place
# is not known: this many tokens beyond it are rescored too.
SPARE_CANDIDATES = 16
RESCORE_BYTES = 2 << 20  # about what a core's own cache holds
CARD_RESCORE_BYTES = 256 << 20  # a card has no such cache, and three launches a piece
BLOCK_TOKENS = 64


@dataclass(frozen=True)
class TopK:
    """Most probable tokens of each row, best first: id int32, p of the full softmax f32."""

    id_RK: Tensor
    p_RK: Tensor
    logsumexp_R: Tensor


@dataclass(frozen=True)
class Candidates:
    """Tokens that may be among a row's best, with logits as the GEMM rounded them."""

    id_rM: Tensor
    z_rM: Tensor


def candidates(logits_rV: Tensor, head_VH: Tensor, k: int) -> Candidates:
    """Enough of each row's largest logits, largest first, to hold its true best k."""
    spare = 0 if head_VH.dtype == torch.float32 else SPARE_CANDIDATES
    return largest(logits_rV, min(k + spare, head_VH.shape[0]))


def largest(logits_rV: Tensor, count: int) -> Candidates:
    """The `count` largest logits of each row, largest first; the order of ties is open.

    They lie in the `count` blocks with the largest maxima, so only these are sorted: two to
    three times as quick as `topk` over a large vocabulary.
    """
    rows, vocab = logits_rV.shape
    blocks, rest = divmod(vocab, BLOCK_TOKENS)
    if rest or blocks < 4 * count:
        z_rM, id_rM = logits_rV.topk(count, dim=-1)
        return Candidates(id_rM, z_rM)
    logits_rNG = logits_rV.view(rows, blocks, BLOCK_TOKENS)
    block_rM = logits_rNG.amax(2).topk(count, dim=-1, sorted=False).indices
    first_r1 = torch.arange(rows, device=block_rM.device)[:, None] * blocks
    kept = logits_rNG.flatten(0, 1).index_select(0, (first_r1 + block_rM).flatten())
    z_rM, place_rM = kept.view(rows, count * BLOCK_TOKENS).topk(count, dim=-1)
    block_rM = block_rM.gather(1, place_rM // BLOCK_TOKENS)
    return Candidates(block_rM * BLOCK_TOKENS + place_rM % BLOCK_TOKENS, z_rM)


def exact_top(
    normed_rH: Tensor, head_VH: Tensor, found: Candidates, logsumexp_r: Tensor, k: int
) -> TopK:
    """The best k of the candidates by their exact logits; log-sum-exp mended to match."""
    id_rM, z_rM = found.id_rM, found.z_rM
    if head_VH.dtype != torch.float32:
        z_rM = exact_logits(normed_rH.float(), head_VH, id_rM)
        rounded_p_rM = (found.z_rM - logsumexp_r[:, None]).exp()
        exact_p_rM = (z_rM - logsumexp_r[:, None]).exp()
        logsumexp_r = logsumexp_r + torch.log1p((exact_p_rM - rounded_p_rM).sum(-1))
        z_rM, order_rM = z_rM.sort(dim=-1, descending=True, stable=True)
        id_rM = id_rM.gather(1, order_rM)
    p_rK = (z_rM[:, :k] - logsumexp_r[:, None]).exp()
    return TopK(id_rM[:, :k].to(torch.int32), p_rK, logsumexp_r)


def exact_logits(normed_rH: Tensor, head_VH: Tensor, id_rM: Tensor) -> Tensor:
    """f32 products of each row (f32) with its candidates' head rows, a few at a time."""
    most, width = id_rM.shape[1], head_VH.shape[1]
    piece_bytes = RESCORE_BYTES if head_VH.device.type == "cpu" else CARD_RESCORE_BYTES
    rows = min(max(1, piece_bytes // (most * width * 4)), len(id_rM))
    low_MH = head_VH.new_empty((rows * most, width))
    wide_rMH = normed_rH.new_empty((rows, most, width))
    exact_rM = normed_rH.new_empty(id_rM.shape)
    for start in range(0, len(id_rM), rows or 1):
        at = slice(start, start + rows)
        count = len(id_rM[at])
        some_MH, some_rMH = low_MH[: count * most], wide_rMH[:count]
        torch.index_select(head_VH, 0, id_rM[at].flatten(), out=some_MH)
        some_rMH.copy_(some_MH.view_as(some_rMH))
        # Row times matrix: the same as matrix times column takes eight times as long.
        torch.bmm(normed_rH[at, None], some_rMH.mT, out=exact_rM[at, None])
    return exact_rM
