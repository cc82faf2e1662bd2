"""What `nets.sampling` says of the rows of a chain step, added up by window.

Axes: R rows, W windows, N temperatures, K kept tokens; 4: a sampled draft's acceptance
(low, high), a greedy one's (low, high).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nets.head import MeasuredRows
from nets.sampling import (
    DraftRows,
    FloatArray,
    IntArray,
    greedy_acceptance,
    own_acceptance,
    sampled_acceptance,
    trunk_rows,
)
from nets.source import ChainRows


def above_zero(temperatures: Sequence[float]) -> tuple[float, ...]:
    """Those at which q must be read; at 0 the first token tells all."""
    return tuple(t for t in temperatures if t > 0)


def acceptance_rows(
    rows: ChainRows, found: MeasuredRows, temperatures: Sequence[float], vocab: int
) -> FloatArray:
    """Acceptance of each row at each temperature, f64 [R, N, 4]."""
    top_p_RK = rows.topk_p_RK.double().cpu().numpy()
    first_R = place_of(rows.topk_id_RK, found.top.id_RK[:, 0])
    tempered = iter(found.tempered)
    columns = []
    for temperature in temperatures:
        if temperature == 0:
            own = own_acceptance(DraftRows(top_p_RK, first_R))
            bounds = (own, own)
        else:
            q_RK = next(tempered).double().cpu().numpy()
            trunk, draft = (
                trunk_rows(top_p_RK, vocab, temperature),
                DraftRows(q_RK, first_R),
            )
            bounds = (sampled_acceptance(trunk, draft), greedy_acceptance(trunk, draft))
        columns.append(
            np.stack([end for one in bounds for end in (one.low_R, one.high_R)], -1)
        )
    return np.stack(columns, 1) if columns else np.zeros((len(first_R), 0, 4))


def place_of(topk_id_RK: Tensor, id_R: Tensor) -> IntArray:
    """Where a token of each row stands among the trunk's kept ones, K for nowhere."""
    is_it_RK = topk_id_RK == id_R[:, None]
    kept = topk_id_RK.shape[1]
    place_R = torch.where(is_it_RK.any(1), is_it_RK.int().argmax(1), kept)
    return np.asarray(place_R.cpu().numpy(), np.int64)


def summed_by_window(
    values_R: FloatArray, at_R: Tensor, shape: tuple[int, int]
) -> FloatArray:
    """Sums by window of rows at these places of windows × positions; [W, …]."""
    sums_W = np.zeros((shape[0], *values_R.shape[1:]))
    np.add.at(sums_W, at_R.cpu().numpy() // shape[1], values_R)
    return sums_W
