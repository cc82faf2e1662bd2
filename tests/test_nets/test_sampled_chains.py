"""Whole chains under sampling equal plain loops over whole distributions."""

import numpy as np
import pytest
import torch

from nets.evaluate import Compute
from nets.sampled_chains import sampled_chains
from nets.source import Windows
from tests.builders import tiny_llama
from tests.oracles.sampling import draft_greedy, draft_sampled, tempered
from tests.test_nets.chain_source import draft_of, jitter, own_windows
from tests.test_nets.test_evaluate import DEPTH, oracle_logits

torch.set_num_threads(1)

LENGTHS, WIDTH = (10, 8), 10
WINDOWS = Windows((0, 1), (0, 0))
F32 = Compute(batch=2, dtype="f32", budget_bytes=1)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_sums_equal_plain_loops(temperature: float) -> None:
    fresh = draft_of(tiny_llama())
    vocab = fresh.shared.head_VH.shape[0]
    every = own_windows(fresh, LENGTHS, WIDTH, kept=vocab)
    few = own_windows(fresh, LENGTHS, WIDTH, kept=4)
    draft = jitter(draft_of(tiny_llama()), 0.15)
    found = sampled_chains(draft, every, WINDOWS, DEPTH, F32, temperature)
    bounded = sampled_chains(draft, few, WINDOWS, DEPTH, F32, temperature)
    wanted = np.zeros((2, DEPTH, 2))
    whole = every.whole
    for w, length in enumerate(LENGTHS):
        ids = whole.ids_BT[w, :length].tolist()
        logits = oracle_logits(draft, ids, whole.hidden_BTH[w, :length].double().numpy())
        trunk = np.zeros((length, vocab))
        for r in range(length):
            trunk[r, whole.topk_id_BTK[w, r].numpy()] = whole.topk_p_BTK[w, r].numpy()
        for p in range(length):
            weights = [1.0, 1.0]
            for j in range(1, min(DEPTH, length - 1 - p) + 1):
                z = logits[p, j]
                q, own = (
                    (np.exp(z - z.max()) / np.exp(z - z.max()).sum()).tolist(),
                    trunk[p + j].tolist(),
                )
                wanted[w, j - 1, 0] += weights[0] * draft_sampled(own, q, temperature)
                wanted[w, j - 1, 1] += weights[1] * draft_greedy(own, q, temperature)
                if p + j + 1 == length:
                    break
                x = ids[p + j + 1]
                at_p, at_q = tempered(own, temperature)[x], tempered(q, temperature)[x]
                weights[0] *= min(1.0, at_q / at_p) if at_p > 0 else 1.0
                weights[1] *= float(x == int(np.argmax(q)))
    assert found.alive_WC.tolist() == [[9, 8, 7], [7, 6, 5]]
    assert wanted[:, 2].min() > 0.01
    for end in (0, 1):
        np.testing.assert_allclose(found.kept_WC4[..., end], wanted[..., 0], atol=5e-4)
        np.testing.assert_allclose(found.kept_WC4[..., 2 + end], wanted[..., 1], atol=5e-4)
    for kind in (0, 1):
        assert (bounded.kept_WC4[..., 2 * kind] <= wanted[..., kind] + 5e-4).all()
        assert (bounded.kept_WC4[..., 2 * kind + 1] >= wanted[..., kind] - 5e-4).all()
