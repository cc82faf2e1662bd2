"""Acceptance of a drafted token under sampling, from whole distributions, plain loops."""

from collections.abc import Sequence
from itertools import product


def tempered(p: Sequence[float], temperature: float) -> list[float]:
    """A distribution at a temperature; 0 puts all on the first of the most probable."""
    if temperature == 0:
        best = max(range(len(p)), key=lambda v: (p[v], -v))
        return [1.0 if v == best else 0.0 for v in range(len(p))]
    top = max(p)
    weights = [(x / top) ** (1 / temperature) for x in p]
    return [w / sum(weights) for w in weights]


def draft_sampled(p: Sequence[float], q: Sequence[float], temperature: float) -> float:
    pairs = zip(tempered(p, temperature), tempered(q, temperature), strict=True)
    return sum(min(a, b) for a, b in pairs)


def draft_greedy(p: Sequence[float], q: Sequence[float], temperature: float) -> float:
    return tempered(p, temperature)[max(range(len(q)), key=lambda v: q[v])]


def chain_held(p: Sequence[Sequence[float]], q: Sequence[Sequence[float]]) -> float:
    """Expected drafts held of a chain whose steps don't depend on what was drafted.

    Every sequence the draft could draw, by its probability, and how often each is taken.
    """
    depth, vocab, total = len(p), len(p[0]), 0.0
    for drawn in product(range(vocab), repeat=depth):
        chance, taken = 1.0, 1.0
        for step, token in enumerate(drawn):
            chance *= q[step][token]
        for step, token in enumerate(drawn):
            if q[step][token] > 0:
                taken *= min(1.0, p[step][token] / q[step][token])
            total += chance * taken
    return total
