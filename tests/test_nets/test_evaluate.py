"""A measure equals decode rounds run one by one, counted and scored by plain loops."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from nets.draft import Draft
from nets.errors import TrainingError
from nets.evaluate import Compute, Evaluation, evaluate
from nets.hold import count_starts, count_walk, measure_holds
from nets.source import Batch, Windows
from tests.builders import TinyModel, tiny_llama, tiny_qwen3
from tests.oracles.counts import by_starts, by_walk
from tests.oracles.losses import tail_kl_row
from tests.oracles.rounds import all_rounds
from tests.oracles.trunk import Plain, Rows, norm
from tests.test_nets.chain_source import ListSource, draft_of, jitter, own_windows

torch.set_num_threads(1)

LENGTHS, WIDTH, DEPTH = (14, 14, 9), 14, 3
WINDOWS = Windows((0, 1, 2), (0, 0, 1))
F32 = Compute(batch=2, dtype="f32", budget_bytes=1)


def oracle_logits(
    draft: Draft, ids: Sequence[int], hidden: Rows
) -> dict[tuple[int, int], Rows]:
    """The draft's logits at (start, step), from rounds run one at a time in f64."""
    arch = draft.shared.arch
    plain = Plain(0, arch.head_dim, arch.rms_norm_eps, arch.rope_theta)
    tensors = {name: tensor.double().numpy() for name, tensor in draft.tensors().items()}
    tensors["model.embed_tokens.weight"] = draft.shared.embed_VH.double().numpy()
    head, gain = draft.shared.head_VH.double().numpy(), tensors["model.mtp.norm.weight"]
    rounds = all_rounds(ids, hidden, DEPTH, tensors, plain)
    return {at: head @ norm(o, gain, plain.eps) for at, o in rounds.items()}


def assert_window_equals_oracle(
    found: Evaluation, w: int, draft: Draft, batch: Batch
) -> float:
    """Counts and top tokens of one window; returns its sum of step-1 losses."""
    length = int(batch.length_B[w])
    ids, own = batch.ids_BT[w, :length].tolist(), batch.topk_id_BTK[w, :length, 0].tolist()
    logits = oracle_logits(draft, ids, batch.hidden_BTH[w, :length].double().numpy())
    drafted = [[-1] * DEPTH for _ in range(length)]
    for (p, step), z in logits.items():
        drafted[p][step - 1] = int(z.argmax())
    for count, plain_count in ((count_starts, by_starts), (count_walk, by_walk)):
        counts = count(found.arrays)
        pairs = zip(counts.counted_WC[w].tolist(), counts.hit_WC[w].tolist(), strict=True)
        assert [list(pair) for pair in pairs] == plain_count(ids, own, drafted)
    loss = 0.0
    for p, c in zip(*np.nonzero(found.arrays.counted_WTC[w]), strict=True):
        assert found.top_id_WTC4[w, p, c, 0] == drafted[p][c], f"start {p}, step {c + 1}"
        if c == 0:
            target = (
                batch.topk_id_BTK[w, p + 1].tolist(),
                batch.topk_p_BTK[w, p + 1].tolist(),
            )
            loss += tail_kl_row(logits[int(p), 1].tolist(), *target)
    return loss


@pytest.mark.parametrize("make", [tiny_llama, tiny_qwen3])
def test_measure_equals_rounds_run_one_by_one(make: Callable[[], TinyModel]) -> None:
    draft = draft_of(make())
    source = own_windows(draft, LENGTHS, WIDTH)
    jitter(draft, 0.15)
    found = evaluate(draft, source, WINDOWS, DEPTH, F32)
    hits = count_starts(found.arrays).hit_WC.sum(0)
    assert hits[0] > hits[1] > hits[2] > 0, "the case must have hits at every step"
    losses = [
        assert_window_equals_oracle(found, w, draft, source.whole)
        for w in range(len(LENGTHS))
    ]
    rows = int(found.arrays.counted_WTC[:, :, 0].sum())
    assert found.kl_C[0] == pytest.approx(sum(losses) / rows, abs=1e-5)


def test_a_draft_holds_all_that_counts_of_its_own_text() -> None:
    draft = draft_of(tiny_qwen3())
    source = own_windows(draft, LENGTHS, WIDTH)
    measure = measure_holds(evaluate(draft, source, WINDOWS, DEPTH, F32).arrays)
    assert [step.rate for step in measure.walk.steps] == [1.0, 1.0, 1.0]
    assert measure.walk.drafts_held == 3.0
    own, rows = 0, 0
    whole = source.whole
    for w, length in enumerate(LENGTHS):
        for p in range(length - 1):
            own += int(whole.ids_BT[w, p + 1] == whole.topk_id_BTK[w, p, 0])
            rows += 1
    assert measure.coverage == pytest.approx(own / rows)


def test_bf16_measures_about_the_same() -> None:
    draft = draft_of(tiny_qwen3())
    source = own_windows(draft, LENGTHS, WIDTH)
    found = evaluate(draft, source, WINDOWS, DEPTH, replace(F32, dtype="bf16"))
    hits, counted = found.arrays.hit_WTC[:, :, 0], found.arrays.counted_WTC[:, :, 0]
    # Rows are off by some 2**-8 of themselves: a near tie may turn, not one row in five.
    assert hits.sum() >= 0.8 * counted.sum()
    # KL of a small error is about half its square in logits of size 1.
    assert abs(found.kl_C[0]) < 1e-2


def test_padding_and_batch_size_change_nothing() -> None:
    draft = jitter(draft_of(tiny_llama()), 0.15)
    source = own_windows(draft, LENGTHS, WIDTH)
    whole = source.whole
    beyond = torch.arange(WIDTH) >= whole.length_B[:, None]
    other = ListSource(
        replace(
            whole,
            ids_BT=whole.ids_BT.masked_fill(beyond, 5),
            hidden_BTH=whole.hidden_BTH * 1,
        )
    )
    other.whole.hidden_BTH[beyond] = 3.0
    one = evaluate(draft, source, WINDOWS, DEPTH, F32)
    two = evaluate(draft, other, WINDOWS, DEPTH, replace(F32, batch=1))
    np.testing.assert_array_equal(one.arrays.counted_WTC, two.arrays.counted_WTC)
    np.testing.assert_array_equal(one.top_id_WTC4, two.top_id_WTC4)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_stored_rows_that_are_not_finite_name_their_window(bad: float) -> None:
    draft = draft_of(tiny_llama())
    source = own_windows(draft, LENGTHS, WIDTH)
    source.whole.hidden_BTH[2, 3, 4] = bad
    with pytest.raises(TrainingError, match="window 2"):
        evaluate(draft, source, WINDOWS, DEPTH, F32)


def test_no_window_is_an_error() -> None:
    draft = draft_of(tiny_llama())
    source = own_windows(draft, LENGTHS, WIDTH)
    with pytest.raises(TrainingError, match="no held-out window"):
        evaluate(draft, source, Windows((), ()), DEPTH, F32)


def test_caps_take_evenly_spaced_windows_of_each_set() -> None:
    windows = Windows(tuple(range(10, 19)), (0,) * 6 + (1,) * 3)
    assert windows.capped(None) is windows
    assert windows.capped(2) == Windows((10, 13, 16, 17), (0, 0, 1, 1))
    assert windows.capped(5) == Windows(
        (10, 11, 12, 13, 14, 16, 17, 18), (0,) * 5 + (1,) * 3
    )
