"""Bounds from a top-k hold the figure of the whole distribution, at every temperature."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nets.sampling import (
    DraftRows,
    fed_acceptance,
    greedy_acceptance,
    own_acceptance,
    sampled_acceptance,
    trunk_rows,
)
from tests.oracles.sampling import chain_held, draft_greedy, draft_sampled, tempered

SLACK = 1e-9  # f64 sums of at most 12 terms


def draft_rows(
    p: NDArray[np.float64], q: NDArray[np.float64], kept: int, temperature: float
) -> tuple[NDArray[np.float64], DraftRows]:
    """A row's top-k of the trunk, and the draft on these tokens."""
    order = [int(v) for v in np.argsort(-p, kind="stable")[:kept]]
    at = np.asarray(tempered(q.tolist(), temperature))
    first = int(q.argmax())
    place = order.index(first) if first in order else kept
    return p[order][None], DraftRows(at[order][None], np.array([place]))


def drawn(seed: int, vocab: int, sharp: float) -> NDArray[np.float64]:
    z = np.random.default_rng(seed).normal(size=vocab) * sharp
    values = np.exp(z - z.max())
    return np.asarray(values / values.sum())


def slack(p: NDArray[np.float64], kept: int, temperature: float) -> float:
    """How far the last bits of the mass outside can move a bound.

    It is 1 less a sum, so off by a bit of 1 a term, however small it is itself; a power
    below 1 makes that large. Bounds are weights over a sum of at least 1.
    """
    falling, power, off = -np.sort(-p), 1 / temperature, len(p) * 2.0**-53
    best, last, rest = falling[0], falling[kept - 1], falling[kept:]
    if not len(rest):
        return SLACK
    ends = (rest.sum() + off, max(rest.sum() - off, 0.0))
    even, most = (
        (ends[0] / (share * best)) ** power - (ends[1] / (share * best)) ** power
        for share in (len(rest), 1)
    )
    steep = off * last ** (power - 1) / best**power
    return float(SLACK + 2 * (len(rest) * even + most + steep))


@settings(max_examples=300, deadline=None)
@example(seed=3886, vocab=7, kept=6, sharp=8.0, temperature=4.0)
@given(
    seed=st.integers(0, 10**6),
    vocab=st.integers(2, 12),
    kept=st.integers(1, 12),
    sharp=st.sampled_from([0.0, 0.3, 2.0, 8.0]),
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.6, 4.0]),
)
def test_bounds_hold_the_truth(
    seed: int, vocab: int, kept: int, sharp: float, temperature: float
) -> None:
    p, q = drawn(seed, vocab, sharp), drawn(seed + 1, vocab, 2.0)
    top_p, draft = draft_rows(p, q, min(kept, vocab), temperature)
    trunk = trunk_rows(top_p, vocab, temperature)
    off = slack(p, min(kept, vocab), temperature)
    for bounds, truth in (
        (sampled_acceptance(trunk, draft), draft_sampled(list(p), list(q), temperature)),
        (greedy_acceptance(trunk, draft), draft_greedy(list(p), list(q), temperature)),
    ):
        assert bounds.low_R[0] - off <= truth <= bounds.high_R[0] + off
        assert 0 <= bounds.low_R[0] <= bounds.high_R[0] <= 1 + SLACK
        if kept >= vocab:  # nothing is left to guess
            assert bounds.high_R[0] - bounds.low_R[0] < SLACK


def test_a_row_worked_by_hand_at_temperature_1() -> None:
    # p = .5 .3 | .1 .1, q = .2 .4 | .4 0: inside .2 + .3; outside min(.2, .4) at most, the
    # truth adds .1. The draft's first token is outside: at most tp[1]'s .3, but P is .2.
    trunk = trunk_rows(np.array([[0.5, 0.3]]), 4, 1.0)
    found = sampled_acceptance(trunk, DraftRows(np.array([[0.2, 0.4]]), np.array([2])))
    assert (found.low_R[0], found.high_R[0]) == pytest.approx((0.5, 0.7))
    first = greedy_acceptance(trunk, DraftRows(np.array([[0.2, 0.4]]), np.array([2])))
    assert (first.low_R[0], first.high_R[0]) == pytest.approx((0.0, 0.2))
    kept = greedy_acceptance(trunk, DraftRows(np.array([[0.2, 0.4]]), np.array([1])))
    assert (kept.low_R[0], kept.high_R[0]) == pytest.approx((0.3, 0.3))


def test_tail_bounds_worked_by_hand() -> None:
    # τ = 1/2: squares, over the first's. Outside .2 on 2 tokens, none above .3:
    # even 2 · .1² = .02, steep .2 · .3 = .06; over .25.
    cold = trunk_rows(np.array([[0.5, 0.3]]), 4, 0.5)
    assert cold.tail.low_R[0] == pytest.approx(0.02 / 0.25)
    assert cold.tail.high_R[0] == pytest.approx(0.06 / 0.25)
    # τ = 2: roots; even 2 · √.1, steep .2 / √.3, now the other way round.
    warm = trunk_rows(np.array([[0.5, 0.3]]), 4, 2.0)
    assert warm.tail.low_R[0] == pytest.approx(0.2 / 0.3**0.5 / 0.5**0.5)
    assert warm.tail.high_R[0] == pytest.approx(2 * 0.1**0.5 / 0.5**0.5)


def test_temperature_0_is_the_greedy_count() -> None:
    for seed in range(20):
        p, q = drawn(seed, 6, 2.0), drawn(seed + 100, 6, 2.0)
        _, draft = draft_rows(p, q, 3, 0.0)
        found = own_acceptance(draft)
        assert found.low_R[0] == found.high_R[0] == float(p.argmax() == q.argmax())
        assert found.low_R[0] == draft_sampled(list(p), list(q), 0.0)
        assert found.low_R[0] == draft_greedy(list(p), list(q), 0.0)


def test_a_tail_rounded_below_zero_or_gone_is_no_tail() -> None:
    trunk = trunk_rows(np.array([[1.0 + 1e-7, 0.0], [0.6, 0.4]]), 9, 3.0)
    assert trunk.tail.high_R.tolist() == [0.0, 0.0]
    assert np.isfinite(trunk.weight_RK).all()


@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.0])
def test_what_the_text_was_fed_weighs_a_chain_without_bias(temperature: float) -> None:
    p = [drawn(seed, 4, 1.0) for seed in (1, 2, 3)]
    q = [drawn(seed, 4, 1.0) for seed in (4, 5, 6)]
    at_p = [tempered(one.tolist(), temperature) for one in p]
    at_q = [tempered(one.tolist(), temperature) for one in q]
    alpha = [
        draft_sampled(list(a), list(b), temperature) for a, b in zip(p, q, strict=True)
    ]
    found = 0.0
    for text in itertools.product(range(4), repeat=3):  # every text the trunk could write
        chance = float(np.prod([at_p[j][x] for j, x in enumerate(text)]))
        weight = 1.0
        for j, x in enumerate(text):
            found += chance * weight * alpha[j]
            top_p, _ = draft_rows(p[j], q[j], 4, temperature)
            place = np.flatnonzero(np.argsort(-p[j], kind="stable") == x)
            fed, _ = fed_acceptance(
                trunk_rows(top_p, 4, temperature),
                np.array([at_q[j][x]]),
                place,
                is_first_R=np.array([False]),
            )
            assert fed.low_R[0] == pytest.approx(fed.high_R[0])
            weight *= fed.low_R[0]
    assert found == pytest.approx(chain_held(at_p, at_q))


def test_a_fed_token_outside_the_top_k_is_bounded() -> None:
    # p is at most .2 there (see above): a q of .05 is kept with .25 at least.
    trunk = trunk_rows(np.array([[0.5, 0.3]]), 4, 1.0)
    sampled, greedy = fed_acceptance(
        trunk, np.array([0.05]), np.array([2]), is_first_R=np.array([True])
    )
    assert (sampled.low_R[0], sampled.high_R[0]) == pytest.approx((0.25, 1.0))
    assert (greedy.low_R[0], greedy.high_R[0]) == (1.0, 1.0)
