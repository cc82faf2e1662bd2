"""The reference's layouts a row at a time, each sequence with a cache of its own, f64.

Built on the one-row draft of `tests.oracles.rounds`, from healing.md §6; nothing of `nets`.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tests.oracles.rounds import DecodingDraft
from tests.oracles.trunk import Plain, Rows

Chains = dict[tuple[int, int], Rows]


def rows_chains(
    ids: Sequence[int], hidden: Rows, depth: int, tensors: Mapping[str, Rows], plain: Plain
) -> Chains:
    """The output at (start, step): step j is a sequence of the rows that step j-1 left."""
    outputs: Chains = {}
    carried = list(hidden)
    for step in range(1, depth + 1):
        draft = DecodingDraft(tensors, plain)
        for p in range(len(ids) - step):
            carried[p] = draft.feed(ids[p + step], carried[p], p)
            outputs[p, step] = carried[p]
    return outputs


def stride_sequence(
    ids: Sequence[int],
    hidden: Rows,
    depth: int,
    starts: Sequence[int],
    tensors: Mapping[str, Rows],
    plain: Plain,
) -> tuple[list[Rows], list[Rows]]:
    """What every row of the window carries in the end, and its output."""
    carried = [np.asarray(row) for row in hidden]

    def forward() -> list[Rows]:
        draft = DecodingDraft(tensors, plain)
        return [draft.feed(ids[q + 1], carried[q], q) for q in range(len(ids) - 1)]

    for j in range(2, depth + 1):
        output = forward()
        for n in starts:
            if n + j < len(ids):
                q = n + j - 1
                carried[q] = output[q - 1]
    return carried, forward()


def starts_of(window: int, refresh_round: int, every: int, width: int) -> list[int]:
    """Every `every`th row from the offset that the reference gives a window in a round."""
    n = (window * 5 + refresh_round * 3) % every
    found = []
    while n < width:
        found.append(n)
        n += every
    return found
