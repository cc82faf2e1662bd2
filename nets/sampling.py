"""How often a sampling trunk takes a draft's token, bounded by what its top-k tells.

A trunk that samples at temperature τ takes a token x drafted from q with probability
min(1, p(x)/q(x)), so a draft that samples is taken with Σ_v min(p(v), q(v)), and one that
gives its first token with p(argmax q) (Leviathan et al., arXiv 2211.17192; healing.md §7).
Of p only the top-k at τ = 1 is known: the rest is bounded. numpy only, f64.
Axes: R rows, K kept tokens.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Bounds:
    """A figure of each row that lies between the two."""

    low_R: FloatArray
    high_R: FloatArray


@dataclass(frozen=True)
class DraftRows:
    """A draft at a temperature: q of the trunk's kept tokens, and its first token's place.

    `first_R` is the place of argmax q among the kept tokens, K where it is none of them.
    """

    q_RK: FloatArray
    first_R: IntArray


@dataclass(frozen=True)
class TrunkRows:
    """The trunk's kept tokens at one temperature: weights p^(1/τ), and the rest's sum.

    `most_R` bounds the weight of any one token outside.
    """

    weight_RK: FloatArray
    tail: Bounds
    most_R: FloatArray

    def kept(self) -> tuple[FloatArray, FloatArray]:
        """The least and the most probability of each kept token."""
        sum_R = self.weight_RK.sum(1)
        least_RK = self.weight_RK / (sum_R + self.tail.high_R)[:, None]
        return least_RK, self.weight_RK / (sum_R + self.tail.low_R)[:, None]


def trunk_rows(
    topk_p_RK: NDArray[np.floating], vocab: int, temperature: float
) -> TrunkRows:
    """The trunk at a temperature above 0, from its top-k at 1: full-softmax mass, falling.

    With m = V − K tokens outside of mass P, none above c = tp[K−1], the sum of their
    p^(1/τ) lies between m (P/m)^(1/τ) and P c^(1/τ − 1), the other way round above τ = 1.
    """
    # Weights are over the row's first: a power of a small p underflows, a ratio doesn't.
    p_RK = np.asarray(topk_p_RK, np.float64)
    best_R, last_R = p_RK[:, 0], p_RK[:, -1]
    outside = vocab - p_RK.shape[1]
    # Rounded sums may leave more mass outside than so many tokens could hold.
    mass_R = np.clip(1.0 - p_RK.sum(1), 0.0, outside * last_R)
    power = 1.0 / temperature
    even_R = outside * (mass_R / (max(outside, 1) * best_R)) ** power
    cap_R = np.where(last_R > 0, last_R, 1.0)
    steep_R = mass_R / cap_R * (cap_R / best_R) ** power
    tail = Bounds(np.minimum(even_R, steep_R), np.maximum(even_R, steep_R))
    most_R = (np.minimum(mass_R, last_R) / best_R) ** power
    return TrunkRows((p_RK / best_R[:, None]) ** power, tail, most_R)


def sampled_acceptance(trunk: TrunkRows, draft: DraftRows) -> Bounds:
    """Σ_v min(p, q) of each row: the top-k's sum, and that plus min(P, Q) outside."""
    least_RK, most_RK = trunk.kept()
    low_R = np.minimum(least_RK, draft.q_RK).sum(1)
    inside_R = np.minimum(most_RK, draft.q_RK).sum(1)
    tail_R = trunk.tail.high_R
    tail_p_R = tail_R / (trunk.weight_RK.sum(1) + tail_R)
    tail_q_R = np.clip(1.0 - draft.q_RK.sum(1), 0.0, 1.0)
    return Bounds(low_R, np.minimum(inside_R + np.minimum(tail_p_R, tail_q_R), 1.0))


def greedy_acceptance(trunk: TrunkRows, draft: DraftRows) -> Bounds:
    """p(argmax q) of each row; outside the top-k from 0 to the most one token can have."""
    least_RK, most_RK = trunk.kept()
    kept = draft.q_RK.shape[1]
    is_kept_R = draft.first_R < kept
    place_R1 = np.minimum(draft.first_R, kept - 1)[:, None]
    low_R = np.take_along_axis(least_RK, place_R1, 1)[:, 0]
    high_R = np.take_along_axis(most_RK, place_R1, 1)[:, 0]
    # It is itself part of the rest, which is then no less than it.
    rest_R = np.maximum(trunk.tail.low_R, trunk.most_R)
    outside_R = trunk.most_R / (trunk.weight_RK.sum(1) + rest_R)
    return Bounds(np.where(is_kept_R, low_R, 0.0), np.where(is_kept_R, high_R, outside_R))


def own_acceptance(draft: DraftRows) -> Bounds:
    """Both kinds at temperature 0: 1 where the draft's first token is the trunk's own."""
    is_own_R = (draft.first_R == 0).astype(np.float64)
    return Bounds(is_own_R, is_own_R)


def fed_acceptance(
    trunk: TrunkRows, q_R: FloatArray, place_R: IntArray, *, is_first_R: BoolArray
) -> tuple[Bounds, Bounds]:
    """How often each kind of draft had given and kept the token that the text went on with.

    `min(1, q/p)` of the token for a sampled draft, for a greedy one 1 if it is `argmax q`
    and else 0. The text is p's own draw, so the product of these over the steps before
    weighs a step of its chain without bias. `place_R`: among the kept tokens, K for none.
    """
    least_RK, most_RK = trunk.kept()
    kept = least_RK.shape[1]
    place_R1 = np.minimum(place_R, kept - 1)[:, None]
    rest_R = np.maximum(trunk.tail.low_R, trunk.most_R)
    outside_R = trunk.most_R / (trunk.weight_RK.sum(1) + rest_R)
    is_kept_R = place_R < kept
    least_R = np.where(is_kept_R, np.take_along_axis(least_RK, place_R1, 1)[:, 0], 0.0)
    most_R = np.where(is_kept_R, np.take_along_axis(most_RK, place_R1, 1)[:, 0], outside_R)
    greedy_R = is_first_R.astype(np.float64)
    sampled = Bounds(_at_most_1(q_R, most_R), _at_most_1(q_R, least_R))
    return sampled, Bounds(greedy_R, greedy_R)


def _at_most_1(q_R: FloatArray, p_R: FloatArray) -> FloatArray:
    """min(1, q/p), 1 where p is 0."""
    ratio_R = np.ones_like(q_R)
    np.divide(q_R, p_R, out=ratio_R, where=p_R > q_R)
    return ratio_R
