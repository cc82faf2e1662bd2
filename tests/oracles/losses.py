"""`tail_kl` of one row, token by token in f64, from its definition in healing.md §8."""

import math
from collections.abc import Sequence


def tail_kl_row(logits: Sequence[float], ids: Sequence[int], p: Sequence[float]) -> float:
    """KL over the kept tokens plus one outcome for all the others; 0 log 0 = 0."""
    peak = max(logits)
    mass = [math.exp(z - peak) for z in logits]
    q = [m / math.fsum(mass) for m in mass]
    total = 0.0
    for token, mine in zip(ids, p, strict=True):
        if mine > 0:
            total += mine * (math.log(mine) - math.log(q[token]))
    left_p = max(1 - math.fsum(p), 0.0)
    left_q = math.fsum(q[v] for v in range(len(q)) if v not in set(ids))
    return total + left_p * math.log(left_p / left_q) if left_p > 0 else total


def tail_kl_slope(
    logits: Sequence[float], ids: Sequence[int], p: Sequence[float], token: int
) -> float:
    """d loss / d logit of one token by central differences: good to about 1e-9."""
    width = 1e-5
    up, down = list(logits), list(logits)
    up[token] += width
    down[token] -= width
    return (tail_kl_row(up, ids, p) - tail_kl_row(down, ids, p)) / (2 * width)
