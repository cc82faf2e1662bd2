"""Losses of a draft against its trunk's top-k, and what each asks of the draft's logits.

All read a row's logits through the draft's probabilities q of the k kept tokens and its
mass Q outside them, where all tokens are one outcome. `tail_kl`, `topk_kl`, `tv` and `lk`
are for autograd and small inputs: they keep arrays of [R, V], which `nets.head.fused_loss`
does not. Axes: R rows, V vocabulary, K kept tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conf.training import Loss

TINY = torch.finfo(torch.float32).tiny
LK_DECAY = 3.0  # how soon `lk` turns from KL to the overlap as that grows


def tail_kl(logits_RV: Tensor, topk_id_RK: Tensor, topk_p_RK: Tensor) -> Tensor:
    """KL(trunk ‖ draft) of each row in nats, tokens outside the top-k lumped; f32 [R].

    `Σ_k tp_k (log tp_k − log q_k) + P log(P/Q)`, with P = 1 − Σ tp and Q the draft's mass
    outside the k ids. `topk_p_RK` is mass of the full softmax: a row sums to at most 1.
    `0 log 0 = 0`; never below 0 but by rounding. healing.md §8.
    """
    return row_loss("tail_kl", topk_p_RK, _masses(logits_RV, topk_id_RK))


def topk_kl(logits_RV: Tensor, topk_id_RK: Tensor, topk_p_RK: Tensor) -> Tensor:
    """KL(trunk ‖ draft) of each row in nats over the kept tokens alone; f32 [R].

    `Σ_k tp_k (log tp_k − log q_k)`, the reference's. The rows of `topk_p_RK` are not
    renormalised, so this goes below 0, down to `Σtp log Σtp` at `q = tp/Σtp`, which leaves
    nothing outside the top-k; `tail_kl` mends that. healing.md §8.
    """
    return row_loss("topk_kl", topk_p_RK, _masses(logits_RV, topk_id_RK))


def tv(logits_RV: Tensor, topk_id_RK: Tensor, topk_p_RK: Tensor) -> Tensor:
    """1 − α of each row: how often a sampled draft is refused, at most; f32 [R].

    `α = Σ_k min(tp_k, q_k)`, the acceptance that is sure: the whole of it, `Σ_v min(p, q)`,
    lies between α and α + min(P, Q), and what the tail adds isn't known from the top-k. So
    it is in [P, 1], P = 1 − Σ tp, and never below 0 but by rounding. At tp = q the slope of
    the draft's side is taken, 0. Leviathan et al., arXiv 2211.17192.
    """
    return row_loss("tv", topk_p_RK, _masses(logits_RV, topk_id_RK))


def lk(logits_RV: Tensor, topk_id_RK: Tensor, topk_p_RK: Tensor) -> Tensor:
    """`λ tail_kl + (1 − λ) tv` of each row, `λ = exp(−3 α)` held constant; f32 [R].

    `tv` alone has next to no slope where draft and trunk share little (α near 0, where this
    is `tail_kl`); α is `tv`'s, each row's own. Never below 0 but by rounding. The hybrid of
    Samarin et al., arXiv 2602.23881.
    """
    return row_loss("lk", topk_p_RK, _masses(logits_RV, topk_id_RK))


def hard_targets(topk_p_RK: Tensor, share: float) -> Tensor:
    """Targets with that share of each row's mass moved to the trunk's own token, the first.

    `(1 − λ) tp`, and `λ Σ tp` on top for column 0: a row's sum stays. healing.md §8.
    """
    if share == 0:
        return topk_p_RK
    moved_RK = (1.0 - share) * topk_p_RK
    moved_RK[:, 0] += share * topk_p_RK.sum(-1)
    return moved_RK


@dataclass(frozen=True)
class Masses:
    """All that a loss reads of a row's logits: the kept tokens' q and log q, and Q."""

    q_RK: Tensor
    log_q_RK: Tensor
    tail_q_R: Tensor
    logsumexp_R: Tensor


def masses_(logits_RV: Tensor, topk_id_RK: Tensor) -> Masses:
    """The masses of each row; `logits_RV` (f32) becomes q, with zeros on the row's ids.

    Q is the sum over the tokens outside: 1 − Σ q_k has no digit left in a sure draft.
    """
    z_RK = logits_RV.gather(1, topk_id_RK)
    best_z_R, best_R = z_RK.max(1)
    q_RV = torch.softmax(logits_RV, -1, out=logits_RV)
    q_RK = q_RV.gather(1, topk_id_RK)
    # From the best gathered logit, as logsumexp over wide rows costs twice the softmax.
    best_q_R = q_RK.gather(1, best_R[:, None]).squeeze(1).clamp_min(TINY)
    logsumexp_R = best_z_R - best_q_R.log()
    tail_q_R = q_RV.scatter_(1, topk_id_RK, 0.0).sum(-1)
    return Masses(q_RK, z_RK - logsumexp_R[:, None], tail_q_R, logsumexp_R)


@dataclass(frozen=True)
class Slopes:
    """d loss / d logits of each row: `inside` on the k ids, `outside · q_v` elsewhere."""

    inside_RK: Tensor
    outside_R: Tensor


def row_loss(loss: Loss, topk_p_RK: Tensor, masses: Masses) -> Tensor:
    """The loss of each row, f32 [R]."""
    topk_p_RK = topk_p_RK.float()
    if loss == "tv":
        return 1.0 - _overlap(topk_p_RK, masses)
    if loss == "lk":
        kl_R = row_loss("tail_kl", topk_p_RK, masses)
        tv_R = row_loss("tv", topk_p_RK, masses)
        return torch.lerp(tv_R, kl_R, _kl_share(topk_p_RK, masses))
    entropy_RK = torch.xlogy(topk_p_RK, topk_p_RK)
    inside_R = (entropy_RK - topk_p_RK * masses.log_q_RK).sum(-1)
    if loss == "topk_kl":
        return inside_R
    tail_p_R = _tail_mass(topk_p_RK)
    log_tail_q_R = masses.tail_q_R.clamp_min(TINY).log()
    return inside_R + torch.xlogy(tail_p_R, tail_p_R) - tail_p_R * log_tail_q_R


def slopes(loss: Loss, topk_p_RK: Tensor, masses: Masses) -> Slopes:
    """The gradient of each row's loss.

    `tail_kl`: q − tp inside, q (1 − P/Q) outside. `topk_kl`: (Σtp) q − tp, tp 0 outside.
    `tv`, with A the sum of q over the kept tokens where q < tp: q (A − 1) on these, A q on
    all others. `lk`: their mixture.
    """
    q_RK = masses.q_RK
    if loss == "tail_kl":
        ratio_R = _tail_mass(topk_p_RK) / masses.tail_q_R.clamp_min(TINY)
        return Slopes(q_RK - topk_p_RK, 1.0 - ratio_R)
    if loss == "topk_kl":
        kept_R = topk_p_RK.sum(-1)
        return Slopes(kept_R[:, None] * q_RK - topk_p_RK, kept_R)
    if loss == "tv":
        short_RK = q_RK * (q_RK < topk_p_RK)
        short_R = short_RK.sum(-1)
        return Slopes(short_R[:, None] * q_RK - short_RK, short_R)
    kl, overlap = (slopes(part, topk_p_RK, masses) for part in ("tail_kl", "tv"))
    share_R = _kl_share(topk_p_RK, masses)
    return Slopes(
        torch.lerp(overlap.inside_RK, kl.inside_RK, share_R[:, None]),
        torch.lerp(overlap.outside_R, kl.outside_R, share_R),
    )


def _masses(logits_RV: Tensor, topk_id_RK: Tensor) -> Masses:
    """`masses_` for autograd."""
    logits_RV = logits_RV.float()
    logsumexp_R = logits_RV.logsumexp(-1)
    log_q_RV = logits_RV - logsumexp_R[:, None]
    tail_q_R = log_q_RV.exp().scatter(1, topk_id_RK, 0.0).sum(-1)
    log_q_RK = log_q_RV.gather(1, topk_id_RK)
    return Masses(log_q_RK.exp(), log_q_RK, tail_q_R, logsumexp_R)


def _overlap(topk_p_RK: Tensor, masses: Masses) -> Tensor:
    """α of each row, the overlap that the top-k makes sure."""
    q_RK = masses.q_RK
    # Not `minimum`: autograd would halve the slope of a tie.
    return torch.where(q_RK < topk_p_RK, q_RK, topk_p_RK).sum(-1)


def _kl_share(topk_p_RK: Tensor, masses: Masses) -> Tensor:
    """λ of `lk`, without a gradient."""
    return torch.exp(-LK_DECAY * _overlap(topk_p_RK, masses).detach())


def _tail_mass(topk_p_RK: Tensor) -> Tensor:
    """P = 1 − Σ_k tp_k, at least 0: rounding can push the sum past 1."""
    return (1.0 - topk_p_RK.sum(-1)).clamp_min(0.0)
