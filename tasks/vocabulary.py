"""What a head cut to the most frequent tokens of a text would still reach."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.packed import Packed
from tasks.trunk_rows import TrunkRows

SIZES = (8192, 16384, 32768)


def trimmed_vocabularies(
    packed: Packed, rows: TrunkRows, vocab: int, sizes: Sequence[int] = SIZES
) -> list[dict[str, Any]]:
    """Coverage of each size below `vocab` on the held-out rows; none without training text.

    `own` is the share of rows whose trunk's own choice is kept, `mass` that of the top-k's
    mass. A token the training windows never hold is not kept, so `tokens` may be fewer.
    """
    wanted = [size for size in sizes if size < vocab and packed.training]
    if not wanted:
        return []
    kept_SV = _most_frequent(packed, vocab, wanted)
    own_S, inside_S = np.zeros(len(wanted)), np.zeros(len(wanted))
    mass, count = 0.0, 0
    for window in packed.held_out:
        length = int(packed.length[window])
        id_TK = rows.read("topk_id", window)[:length].astype(np.int64)
        p_TK = rows.read("topk_p", window)[:length].astype(np.float64)
        own_S += kept_SV[:, id_TK[:, 0]].sum(1)
        inside_S += np.where(kept_SV[:, id_TK], p_TK, 0.0).sum((1, 2))
        mass, count = mass + float(p_TK.sum()), count + length
    return [
        {
            "size": size,
            "tokens": int(kept_SV[place].sum()),
            "own": float(own_S[place] / count),
            "mass": min(float(inside_S[place] / mass), 1.0),
            "rows": count,
        }
        for place, size in enumerate(wanted)
    ]


def _most_frequent(
    packed: Packed, vocab: int, sizes: Sequence[int]
) -> npt.NDArray[np.bool_]:
    """For each size, the tokens that training windows hold most often; ties: lower ids."""
    count_V = np.zeros(vocab, np.int64)
    for window in packed.training:
        ids = packed.ids[window, : packed.length[window]].astype(np.int64)
        count_V += np.bincount(ids, minlength=vocab)
    best_V = np.argsort(-count_V, kind="stable")
    kept_SV = np.zeros((len(sizes), vocab), np.bool_)
    for place, size in enumerate(sizes):
        kept_SV[place, best_V[:size]] = True
    return kept_SV & (count_V > 0)
