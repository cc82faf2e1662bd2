"""The head loss as it is usually written. Axes: R rows, V vocabulary, K kept tokens."""

import torch
from torch import Tensor


def naive_tail_kl(logits_RV: Tensor, topk_id_RK: Tensor, topk_p_RK: Tensor) -> Tensor:
    """KL over the top-k and the tail as one outcome, [R]: one log_softmax, one gather.

    No pass over the vocabulary that could be spared: the tail's mass is 1 less the others',
    which has no digit left in a sure draft, so `nets.losses.tail_kl` sums it.
    """
    log_q_RK = logits_RV.float().log_softmax(-1).gather(1, topk_id_RK)
    tail_p_R = (1 - topk_p_RK.sum(-1)).clamp_min(1e-12)
    tail_q_R = (1 - log_q_RK.exp().sum(-1)).clamp_min(1e-12)
    inside_R = (torch.xlogy(topk_p_RK, topk_p_RK) - topk_p_RK * log_q_RK).sum(-1)
    return inside_R + tail_p_R * (tail_p_R / tail_q_R).log()
