"""What a setting changes in a run of `fit` itself: loss, target, weights, rows, skips."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import nets.evaluate
import nets.objective
from nets.evaluate import Compute, evaluate
from nets.fit_state import FitState
from nets.hold import reach
from nets.objective import Objective
from nets.ranks import Share
from nets.schedule import learning_rate
from nets.training import FitResult, FitRuntime, FitWindows, fit
from nets.training_rows import trained_rows
from tests.test_nets.chain_source import ListSource, qwen3_windows, stale
from tests.test_nets.test_objective import plain_objective
from tests.test_nets.test_training import (
    QUIET,
    WIDTH,
    WINDOWS,
    change,
    gradients,
    plain_chain_losses,
)

torch.set_num_threads(1)

FIRST_TWO = FitWindows((0, 1), WINDOWS.held_out)


@pytest.fixture(scope="module")
def source() -> ListSource:
    return qwen3_windows(WIDTH, 12)


def one_step(source: ListSource, **fields: object) -> FitResult:
    settings = change(steps=1, trainable="all", **fields)
    return fit(stale(), source, FIRST_TWO, settings, QUIET)


def weighted(kl_C: Tensor, weights: tuple[float, ...]) -> Tensor:
    weight_C = torch.tensor(weights, dtype=kl_C.dtype)
    return (weight_C * kl_C).sum() / weight_C.sum()


@pytest.mark.parametrize(
    ("fields", "objective"),
    [
        ({"loss": "topk_kl"}, Objective("topk_kl")),
        ({"loss": "tv"}, Objective("tv")),
        ({"loss": "lk"}, Objective("lk")),
        ({"hard": 0.3}, Objective(hard=0.3)),
        ({"through_chain": True}, Objective(through_chain=True)),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_a_step_minimises_what_is_asked_for(
    source: ListSource, fields: dict[str, object], objective: Objective
) -> None:
    result, other = one_step(source, **fields), stale()
    other.trainable("all")
    kl_C = plain_objective(other, source, (0, 1), objective)
    loss = weighted(kl_C, reach(result.start.hold_rates))
    squares = [float(g.double().square().sum()) for g in gradients(other, loss).values()]
    assert result.steps[0].loss == pytest.approx(loss.item(), rel=1e-5)
    assert result.steps[0].grad_norm == pytest.approx(math.sqrt(sum(squares)), rel=1e-4)
    usual = one_step(source).steps[0]
    assert usual.grad_norm != pytest.approx(result.steps[0].grad_norm, rel=1e-3)


@pytest.mark.parametrize(
    ("asked", "weights"), [("uniform", (1.0, 1.0, 1.0)), ((3.0, 1.0, 0.5), (3.0, 1.0, 0.5))]
)
def test_steps_weigh_what_is_asked_for(
    source: ListSource, asked: object, weights: tuple[float, ...]
) -> None:
    (step,) = one_step(source, step_weights=asked).steps
    assert step.loss == pytest.approx(weighted(torch.tensor(step.kl), weights).item())


def test_reach_weighs_by_the_last_evaluation(source: ListSource) -> None:
    result = fit(stale(), source, WINDOWS, change(steps=4, eval_every=2, lr=5e-3), QUIET)
    first, second, _ = (reach(record.hold_rates) for record in result.evaluations)
    assert first != pytest.approx(second, abs=1e-3), "else either would do"
    for step, weights in zip(result.steps, (first, first, second, second), strict=True):
        expected = weighted(torch.tensor(step.kl, dtype=torch.float64), weights).item()
        assert step.loss == pytest.approx(expected, rel=1e-6), step.step


def test_anchors_are_the_starts_of_later_steps_alone(source: ListSource) -> None:
    settings = change(steps=1, trainable="all", anchors=0.25)
    (step,) = fit(stale(), source, FIRST_TWO, settings, QUIET).steps
    chosen = trained_rows(settings, 1, source.batch((0, 1)), Share(0, 2, 2))
    assert chosen is not None
    anchors = {(b, p) for b, p, c in chosen.nonzero().tolist() if c == 1}
    expected_C = plain_chain_losses(stale(), source, (0, 1), anchors)
    assert step.kl == pytest.approx(expected_C.tolist(), rel=1e-5)


def test_anchors_leave_step_1_whole_and_follow_the_seed(source: ListSource) -> None:
    batch, share = source.batch((0, 1)), Share(0, 2, 2)
    one, other = (
        trained_rows(change(anchors=0.25, seed=seed), 1, batch, share) for seed in (0, 1)
    )
    assert one is not None
    assert other is not None
    assert one[:, :, 0].all()
    assert not one[:, :, 1].equal(other[:, :, 1])


def spied(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    """How many rows each call of a head's pass is given."""
    seen: list[int] = []
    whole: Callable[..., Any] = getattr(module, name)

    def counted(*given: Any) -> Any:
        # `fused_loss` has the loss's name before the rows.
        seen.append(len(next(one for one in given if isinstance(one, Tensor))))
        return whole(*given)

    monkeypatch.setattr(module, name, counted)
    return seen


def test_rows_that_cannot_count_never_reach_the_head(
    source: ListSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 2 windows of 20 rows, step j has 2 (20 - j) that exist."""
    seen = spied(monkeypatch, nets.objective, "fused_loss")
    one_step(source)
    assert seen == [38, 36, 34]
    seen.clear()
    settings = change(steps=1, anchors=0.25, on_path=True)
    fit(stale(), source, FIRST_TWO, settings, QUIET)
    chosen = trained_rows(settings, 1, source.batch((0, 1)), Share(0, 2, 2))
    assert chosen is not None
    alive = [int(chosen[:, : WIDTH - step, step - 1].sum()) for step in (1, 2, 3)]
    assert seen == alive
    assert alive[1] < 18


def test_a_measure_sends_only_rows_that_count_to_the_head(
    source: ListSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain goes on while its tokens are the trunk's own and its drafts held."""
    seen = spied(monkeypatch, nets.evaluate, "measure_rows")
    found = evaluate(stale(), source, WINDOWS.held_out, 3, Compute(4, "f32", 1))
    batch, expected = source.batch(WINDOWS.held_out.index), [0, 0, 0]
    is_own_BT = batch.ids_BT[:, 1:] == batch.topk_id_BTK[:, :-1, 0]
    for b, length in enumerate(batch.length_B.tolist()):
        for p, j in itertools.product(range(length), (1, 2, 3)):
            expected[j - 1] += (
                p + j < length
                and bool(is_own_BT[b, p : p + j].all())
                and bool(found.arrays.hit_WTC[b, p, : j - 1].all())
            )
    assert seen == expected
    assert 0 < expected[2] < expected[0] < 4 * WIDTH


def test_a_gradient_that_is_not_finite_is_a_skip_though_the_loss_is(
    source: ListSource,
) -> None:
    draft, calls = stale(), 0

    def overflow_once(gradient: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return torch.full_like(gradient, math.inf) if calls == 1 else gradient

    draft.trainable("all")
    # torch leaves `register_hook` untyped.
    first = next(iter(draft.layers.parameters()))
    first.register_hook(overflow_once)  # type: ignore[no-untyped-call]
    states: list[FitState] = []
    runtime = FitRuntime(budget_bytes=1, save=states.append, save_every_s=0.0)
    result = fit(draft, source, WINDOWS, change(steps=2, trainable="all"), runtime)
    assert (result.skipped, calls) == (1, 3)
    assert [record.step for record in result.steps] == [1, 2]
    assert all(math.isfinite(record.grad_norm) for record in result.steps)
    assert states[-1].facts.loss_scale == 2048
    assert all(tensor.isfinite().all() for tensor in states[-1].tensors.values())


@pytest.mark.parametrize(("steps", "warm"), [(9, 1), (19, 1), (25, 2), (39, 3)])
def test_warm_up_is_a_whole_number_of_steps_rounded_down(steps: int, warm: int) -> None:
    rising = [learning_rate(step, steps, 1.0) for step in range(1, warm + 1)]
    assert rising == pytest.approx([step / warm for step in range(1, warm + 1)])
    after = 0.1 + 0.45 * (1 + math.cos(math.pi / (steps - warm)))
    assert learning_rate(warm + 1, steps, 1.0) == pytest.approx(after)
    assert learning_rate(steps, steps, 1.0) == pytest.approx(0.1)
