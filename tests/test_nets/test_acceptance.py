"""A measure's sampling acceptance holds what whole distributions give, row by row."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from nets.evaluate import Compute, Evaluation, evaluate
from nets.hold import count_starts
from nets.source import Batch, Windows
from tests.builders import tiny_llama
from tests.oracles.sampling import draft_greedy, draft_sampled
from tests.test_nets.chain_source import draft_of, jitter, own_windows
from tests.test_nets.test_evaluate import oracle_logits

torch.set_num_threads(1)

LENGTHS, WIDTH, DEPTH = (12, 9), 12, 2
WINDOWS = Windows((0, 1), (0, 0))
F32 = Compute(batch=1, dtype="f32", budget_bytes=1)
TEMPERATURES = (0.0, 0.7, 1.0, 2.0)


def truth(found: Evaluation, whole: Batch) -> NDArray[np.float64]:
    """Sums over the rows that count: [W, C, temperature, (sampled, greedy)]."""
    draft = jitter(draft_of(tiny_llama()), 0.15)
    vocab = draft.shared.head_VH.shape[0]
    sums = np.zeros((len(LENGTHS), DEPTH, len(TEMPERATURES), 2))
    for w, length in enumerate(LENGTHS):
        ids = whole.ids_BT[w, :length].tolist()
        logits = oracle_logits(draft, ids, whole.hidden_BTH[w, :length].double().numpy())
        for p, c in zip(*np.nonzero(found.arrays.counted_WTC[w]), strict=True):
            z = logits[int(p), int(c) + 1]
            q = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
            trunk = np.zeros(vocab)
            at = whole.topk_id_BTK[w, p + c + 1].numpy()
            trunk[at] = whole.topk_p_BTK[w, p + c + 1].double().numpy()
            for n, temperature in enumerate(TEMPERATURES):
                sums[w, c, n, 0] += draft_sampled(trunk.tolist(), q.tolist(), temperature)
                sums[w, c, n, 1] += draft_greedy(trunk.tolist(), q.tolist(), temperature)
    return sums


def test_bounds_hold_the_truth_and_meet_where_all_tokens_are_kept() -> None:
    fresh = draft_of(tiny_llama())
    vocab = fresh.shared.head_VH.shape[0]
    every = own_windows(fresh, LENGTHS, WIDTH, kept=vocab)
    few = own_windows(fresh, LENGTHS, WIDTH, kept=4)
    draft = jitter(draft_of(tiny_llama()), 0.15)
    found = evaluate(draft, every, WINDOWS, DEPTH, F32, temperatures=TEMPERATURES)
    wanted = truth(found, every.whole)
    assert wanted[:, :, 1].min() > 0.1
    # f32 forwards and softmaxes against f64: 1e-5 a row, of at most 12 rows.
    for end in (0, 1):
        np.testing.assert_allclose(
            found.acceptance_WCN4[..., end], wanted[..., 0], atol=2e-4
        )
        np.testing.assert_allclose(
            found.acceptance_WCN4[..., 2 + end], wanted[..., 1], atol=2e-4
        )
    bounded = evaluate(draft, few, WINDOWS, DEPTH, F32, temperatures=TEMPERATURES)
    for kind in (0, 1):
        low = bounded.acceptance_WCN4[..., 2 * kind]
        high = bounded.acceptance_WCN4[..., 2 * kind + 1]
        assert (low <= wanted[..., kind] + 2e-4).all()
        assert (wanted[..., kind] <= high + 2e-4).all()
    room = np.diff(bounded.acceptance_WCN4[:, 0, 2:, :2])
    assert (room > 0.01).all(), "4 tokens leave room"


def test_temperature_0_counts_the_hits_and_the_places_tell_them() -> None:
    fresh = draft_of(tiny_llama())
    source = own_windows(fresh, LENGTHS, WIDTH)
    draft = jitter(draft_of(tiny_llama()), 0.15)
    found = evaluate(draft, source, WINDOWS, DEPTH, F32, temperatures=(0.0,))
    hits = count_starts(found.arrays).hit_WC
    for end in range(4):
        np.testing.assert_array_equal(found.acceptance_WCN4[:, :, 0, end], hits)
    np.testing.assert_array_equal(found.place_WTC == 1, found.arrays.hit_WTC)
    assert not found.place_WTC[~found.arrays.counted_WTC].any()
    for w, p, c in zip(*np.nonzero(found.arrays.counted_WTC), strict=True):
        own = int(source.whole.topk_id_BTK[w, p + c + 1, 0])
        four = found.top_id_WTC4[w, p, c].tolist()
        assert found.place_WTC[w, p, c] == (four.index(own) + 1 if own in four else 0)
    assert (found.place_WTC > 1).any()


@pytest.mark.parametrize("batch", [1, 2])
def test_a_batch_s_size_changes_nothing(batch: int) -> None:
    draft = jitter(draft_of(tiny_llama()), 0.15)
    source = own_windows(draft, LENGTHS, WIDTH)
    compute = Compute(batch=batch, dtype="f32", budget_bytes=1)
    found = evaluate(draft, source, WINDOWS, DEPTH, compute, temperatures=(0.7,))
    one = evaluate(draft, source, WINDOWS, DEPTH, F32, temperatures=(0.7,))
    np.testing.assert_allclose(found.acceptance_WCN4, one.acceptance_WCN4, atol=1e-5)
