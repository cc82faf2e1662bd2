"""The losses of one row, token by token in f64, from their definitions in healing.md §8."""

import math
from collections.abc import Callable, Sequence

RowLoss = Callable[[Sequence[float], Sequence[int], Sequence[float]], float]


def tail_kl_row(logits: Sequence[float], ids: Sequence[int], p: Sequence[float]) -> float:
    """KL over the kept tokens plus one outcome for all the others; 0 log 0 = 0."""
    q = _softmax(logits)
    left_p = max(1 - math.fsum(p), 0.0)
    left_q = math.fsum(q[v] for v in range(len(q)) if v not in set(ids))
    tail = left_p * math.log(left_p / left_q) if left_p > 0 else 0.0
    return topk_kl_row(logits, ids, p) + tail


def topk_kl_row(logits: Sequence[float], ids: Sequence[int], p: Sequence[float]) -> float:
    """KL over the kept tokens, nothing said of the others."""
    q = _softmax(logits)
    total = 0.0
    for token, mine in zip(ids, p, strict=True):
        if mine > 0:
            total += mine * (math.log(mine) - math.log(q[token]))
    return total


def tv_row(logits: Sequence[float], ids: Sequence[int], p: Sequence[float]) -> float:
    """What of the trunk's mass the draft doesn't cover, the tail counted as uncovered."""
    q = _softmax(logits)
    uncovered = [max(mine - q[token], 0.0) for token, mine in zip(ids, p, strict=True)]
    return 1 - math.fsum(p) + math.fsum(uncovered)


def lk_row(logits: Sequence[float], ids: Sequence[int], p: Sequence[float]) -> float:
    """exp(-3 α) parts KL, the rest 1 - α."""
    return mixed_row(logits, ids, p, lk_share(logits, ids, p))


def lk_share(logits: Sequence[float], ids: Sequence[int], p: Sequence[float]) -> float:
    """The parts of `lk_row` that are KL."""
    return math.exp(-3 * (1 - tv_row(logits, ids, p)))


def slope(
    loss: RowLoss,
    logits: Sequence[float],
    ids: Sequence[int],
    p: Sequence[float],
    token: int,
) -> float:
    """d loss / d logit of one token by central differences: good to about 1e-9."""
    width = 1e-5
    up, down = list(logits), list(logits)
    up[token] += width
    down[token] -= width
    return (loss(up, ids, p) - loss(down, ids, p)) / (2 * width)


def hard_row(p: Sequence[float], share: float) -> list[float]:
    """A target of the trunk's own token alone, mixed in; all of it of the row's mass."""
    own = [math.fsum(p), *[0.0] * (len(p) - 1)]
    return [(1 - share) * soft + share * hard for soft, hard in zip(p, own, strict=True)]


def mixed_row(
    logits: Sequence[float], ids: Sequence[int], p: Sequence[float], share: float
) -> float:
    kl, uncovered = tail_kl_row(logits, ids, p), tv_row(logits, ids, p)
    return share * kl + (1 - share) * uncovered


def _softmax(logits: Sequence[float]) -> list[float]:
    peak = max(logits)
    mass = [math.exp(z - peak) for z in logits]
    return [m / math.fsum(mass) for m in mass]
