"""Hold counts in plain loops over one window, as healing.md §7 words them.

`ids` is the window, `own[p]` the trunk's choice after token p, `drafted[p][j-1]` the top
token of the draft at step j of the chain from p. Counts are [counted, hit] a step.
"""

from collections.abc import Sequence

Chains = Sequence[Sequence[int]]
Counts = list[list[int]]


def chain(p: int, ids: Sequence[int], own: Sequence[int], drafted: Chains) -> list[bool]:
    """Whether each step of the chain from p hit, as far as its steps count."""
    hits: list[bool] = []
    for j in range(1, len(drafted[p]) + 1):
        if p + j >= len(ids) or ids[p + j] != own[p + j - 1]:
            break
        hits.append(drafted[p][j - 1] == own[p + j])
        if not hits[-1]:
            break
    return hits


def by_starts(ids: Sequence[int], own: Sequence[int], drafted: Chains) -> Counts:
    counts = [[0, 0] for _ in drafted[0]]
    for p in range(len(ids)):
        for step, hit in enumerate(chain(p, ids, own, drafted)):
            counts[step][0] += 1
            counts[step][1] += hit
    return counts


def by_walk(ids: Sequence[int], own: Sequence[int], drafted: Chains) -> Counts:
    counts = [[0, 0] for _ in drafted[0]]
    p = 0
    while p + 1 < len(ids):
        if ids[p + 1] != own[p]:
            p += 1
            continue
        kept = 0
        for step, hit in enumerate(chain(p, ids, own, drafted)):
            counts[step][0] += 1
            counts[step][1] += hit
            kept += hit
        p += kept + 1
    return counts
