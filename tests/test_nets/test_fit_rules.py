"""Rules of a run of training that no draft's quality shows: healing.md §7, §8."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

import nets.optimizer
from nets.errors import TrainingError
from nets.evaluate import Compute, evaluate
from nets.fit_state import FitState
from nets.training import fit
from tests.builders import tiny_qwen3
from tests.oracles.counts import by_starts, by_walk
from tests.test_nets.chain_source import ListSource, draft_of, own_windows, stale
from tests.test_nets.test_training import (
    QUIET,
    SETTINGS,
    TRAIN,
    WIDTH,
    WINDOWS,
    change,
    with_bad_windows,
)

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def source() -> ListSource:
    return own_windows(draft_of(tiny_qwen3()), [WIDTH] * 12, WIDTH, strange=0.1)


@pytest.mark.parametrize("by", ["walk", "starts"])
def test_checkpoints_are_compared_by_the_counts_asked_for(
    source: ListSource, by: Literal["walk", "starts"]
) -> None:
    states: list[FitState] = []
    runtime = replace(QUIET, save=states.append, save_every_s=0.0)
    settings = change(select_by=by, steps=1, lr=1e-12)
    result = fit(stale(), source, WINDOWS, settings, runtime)
    held_out = WINDOWS.held_out
    found = evaluate(stale(), source, held_out, 3, Compute(2, "f32", 1))
    batch = source.batch(held_out.index)
    counts = np.zeros((len(held_out.index), 3, 2), int)
    for w in range(len(held_out.index)):
        ids = batch.ids_BT[w, : int(batch.length_B[w])].tolist()
        own = batch.topk_id_BTK[w, :, 0].tolist()
        drafted = found.top_id_WTC4[w, :, :, 0].tolist()
        counts[w] = {"walk": by_walk, "starts": by_starts}[by](ids, own, drafted)
    assert (states[0].tensors["counted"].numpy() == counts[:, :, 0]).all()
    assert (states[0].tensors["hit"].numpy() == counts[:, :, 1]).all()
    rates = counts[:, :, 1].sum(0) / np.maximum(counts[:, :, 0].sum(0), 1)
    assert result.start.hold_rates == pytest.approx(tuple(rates))


def test_the_start_and_the_end_are_evaluated_and_every_so_many_steps(
    source: ListSource,
) -> None:
    result = fit(stale(), source, WINDOWS, change(steps=5, eval_every=2), QUIET)
    assert [record.step for record in result.evaluations] == [0, 2, 4, 5]


def test_the_loss_scale_is_halved_down_to_1(source: ListSource) -> None:
    states: list[FitState] = []
    runtime = replace(QUIET, save=states.append, save_every_s=0.0)
    with pytest.raises(TrainingError, match="20th"):
        fit(stale(), with_bad_windows(source, *TRAIN), WINDOWS, SETTINGS, runtime)
    scales = [state.facts.loss_scale for state in states]
    assert scales == [4096 / 2 ** min(skip, 12) for skip in range(1, 20)]


def test_a_step_s_gradient_is_clipped(
    source: ListSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nets.optimizer, "CLIP_NORM", 0.05)  # test_optimizer.py: it is 1
    states: list[FitState] = []
    runtime = replace(QUIET, save=states.append, save_every_s=0.0)
    result = fit(stale(), source, WINDOWS, change(steps=1), runtime)
    moments = [t for n, t in states[0].tensors.items() if n.startswith("moment1/")]
    norm = 10 * sum(float(m.double().square().sum()) for m in moments) ** 0.5
    assert result.steps[0].grad_norm > 0.1  # else nothing is cut
    assert norm == pytest.approx(0.05, rel=1e-4)
