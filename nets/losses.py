"""KL of a draft from its trunk over the trunk's top-k, all other tokens as one outcome.

Axes: R rows, V vocabulary, K kept tokens. Formulas: healing.md §8, `tail_kl`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

TINY = torch.finfo(torch.float32).tiny


def tail_kl(logits_RV: Tensor, topk_id_RK: Tensor, topk_p_RK: Tensor) -> Tensor:
    """KL(trunk ‖ draft) of each row in nats, tokens outside the top-k lumped; f32 [R].

    `Σ_k tp_k (log tp_k − log q_k) + P log(P/Q)`, with P = 1 − Σ tp and Q the draft's mass
    outside the k ids. `topk_p_RK` is mass of the full softmax: a row sums to at most 1.
    `0 log 0 = 0`; never below 0 but by rounding. For autograd and small inputs: it keeps
    arrays of [R, V], which `nets.head.fused_tail_kl` does not.
    """
    log_q_RV = logits_RV.float().log_softmax(-1)
    tail_q_R = log_q_RV.exp().scatter(1, topk_id_RK, 0.0).sum(-1)
    return _kl(topk_p_RK.float(), log_q_RV.gather(1, topk_id_RK), tail_q_R)


@dataclass(frozen=True)
class TailTerms:
    """What a pass over wide logits leaves: losses, log-sum-exp, q on the ids, and P/Q."""

    loss_R: Tensor
    logsumexp_R: Tensor
    inside_q_RK: Tensor
    tail_ratio_R: Tensor


def tail_terms_(logits_RV: Tensor, topk_id_RK: Tensor, topk_p_RK: Tensor) -> TailTerms:
    """`tail_kl` of each row; `logits_RV` (f32) becomes q, with zeros on the row's ids.

    Q is the sum over the tokens outside: 1 − Σ q_k has no digit left in a sure draft.
    """
    z_RK = logits_RV.gather(1, topk_id_RK)
    best_z_R, best_R = z_RK.max(1)
    q_RV = torch.softmax(logits_RV, -1, out=logits_RV)
    inside_q_RK = q_RV.gather(1, topk_id_RK)
    # From the best gathered logit, as logsumexp over wide rows costs twice the softmax.
    best_q_R = inside_q_RK.gather(1, best_R[:, None]).squeeze(1).clamp_min(TINY)
    logsumexp_R = best_z_R - best_q_R.log()
    tail_q_R = q_RV.scatter_(1, topk_id_RK, 0.0).sum(-1)
    return TailTerms(
        loss_R=_kl(topk_p_RK, z_RK - logsumexp_R[:, None], tail_q_R),
        logsumexp_R=logsumexp_R,
        inside_q_RK=inside_q_RK,
        tail_ratio_R=_tail_mass(topk_p_RK) / tail_q_R.clamp_min(TINY),
    )


def tail_gradient_(
    q_RV: Tensor, terms: TailTerms, topk_id_RK: Tensor, topk_p_RK: Tensor
) -> Tensor:
    """d loss / d logits of each row, written over what `tail_terms_` left in `q_RV`.

    `q_v − tp_v` inside the top-k, `q_v (1 − P/Q)` outside (healing.md §8).
    """
    q_RV.mul_((1.0 - terms.tail_ratio_R)[:, None])
    return q_RV.scatter_(1, topk_id_RK, terms.inside_q_RK - topk_p_RK)


def _kl(topk_p_RK: Tensor, log_q_RK: Tensor, tail_q_R: Tensor) -> Tensor:
    tail_p_R = _tail_mass(topk_p_RK)
    inside_R = (torch.xlogy(topk_p_RK, topk_p_RK) - topk_p_RK * log_q_RK).sum(-1)
    log_tail_q_R = tail_q_R.clamp_min(TINY).log()
    return inside_R + torch.xlogy(tail_p_R, tail_p_R) - tail_p_R * log_tail_q_R


def _tail_mass(topk_p_RK: Tensor) -> Tensor:
    """P = 1 − Σ_k tp_k, at least 0: rounding can push the sum past 1."""
    return (1.0 - topk_p_RK.sum(-1)).clamp_min(0.0)
