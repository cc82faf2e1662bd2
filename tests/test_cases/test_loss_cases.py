"""Packing, masks, the loss, resume: sections B and C, as far as training alone goes."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from conf.training import TrainSettings
from nets.draft import Draft
from nets.evaluate import Compute
from nets.fit_state import FitState
from nets.jobs import KindJobs
from nets.objective import chain_sums
from nets.source import Windows
from nets.training import FitResult, FitRuntime, FitWindows, fit
from tests.builders import tiny_qwen3
from tests.test_nets.chain_source import ListSource, draft_of, jitter, own_windows
from tests.test_nets.test_training import SETTINGS as BASE

torch.set_num_threads(1)

COMPUTE = Compute(1, "f32", 1)
WINDOWS = FitWindows(tuple(range(8)), Windows((8, 9, 10, 11), (0, 0, 0, 0)))
SETTINGS = BASE.model_copy(update={"lr": 5e-3, "steps": 10, "eval_every": 2})


def change(**fields: object) -> TrainSettings:
    return SETTINGS.model_copy(update=fields)


def stale() -> Draft:
    return jitter(draft_of(tiny_qwen3()), 0.3)


@pytest.fixture(scope="module")
def source() -> ListSource:
    return own_windows(draft_of(tiny_qwen3()), [16] * 12, 16, strange=0.05)


def padded(source: ListSource, width: int) -> ListSource:
    """The same windows, followed by rows that must not count."""
    whole = source.whole

    def longer(rows: Tensor, value: float) -> Tensor:
        beyond = list(rows.shape)
        beyond[1] = width - beyond[1]
        return torch.cat([rows, torch.full(beyond, value).to(rows.dtype)], dim=1)

    return ListSource(
        replace(
            whole,
            ids_BT=longer(whole.ids_BT, 5),
            hidden_BTH=longer(whole.hidden_BTH, 3.0),
            topk_id_BTK=longer(whole.topk_id_BTK, 7),
            topk_p_BTK=longer(whole.topk_p_BTK, 0.1),
        )
    )


def test_b3_padding_waters_down_neither_loss_nor_gradient(source: ListSource) -> None:
    found = [
        fit(stale(), one, WINDOWS, change(steps=3), FitRuntime(budget_bytes=1)).steps
        for one in (source, padded(source, 40))
    ]
    for alone, beside in zip(*found, strict=True):
        # f32 sums over some 30 rows, masked in calls of another width.
        assert beside.loss == pytest.approx(alone.loss, rel=1e-4)
        assert beside.grad_norm == pytest.approx(alone.grad_norm, rel=1e-4)
        assert beside.kl == pytest.approx(alone.kl, rel=1e-4)


@pytest.mark.parametrize("layout", ["exact", "rows", "stride"])
@pytest.mark.parametrize("kind", [0, 1])
def test_b3_the_gradient_of_16_tokens_is_theirs_alone(
    source: ListSource, layout: str, kind: int
) -> None:
    """One window of 16 tokens, alone and in front of 24 rows of padding."""
    found = []
    for one in (source, padded(source, 40)):
        draft, batch = stale(), one.batch((8,))
        draft.trainable("block")
        if layout == "exact":
            sums = chain_sums(draft, batch, 2, COMPUTE)
        else:
            stride = 4 if layout == "stride" else None
            given = change(depth=2, layout=layout, stride=stride)
            sums = KindJobs(draft, given, COMPUTE).losses(batch, (8,), kind)
        loss = sums.means()[kind if layout == "exact" else 0]
        trained = [p for p in draft.parameters() if p.requires_grad]
        found.append((loss, torch.autograd.grad(loss, trained)))
    (alone, its_own), (beside, padded_s) = found
    assert beside.item() == pytest.approx(alone.item(), rel=1e-5)
    assert its_own
    for wanted, gradient in zip(its_own, padded_s, strict=True):
        assert wanted.abs().max() > 0
        # Sums of f32 over 15 rows, in calls of another width.
        torch.testing.assert_close(gradient, wanted, rtol=1e-3, atol=1e-6)


def saving(
    source: ListSource, settings: TrainSettings, resume: FitState | None = None
) -> tuple[Draft, FitResult, list[FitState]]:
    draft, states = stale(), list[FitState]()
    runtime = FitRuntime(
        budget_bytes=1, save=states.append, save_every_s=0.0, resume=resume
    )
    return draft, fit(draft, source, WINDOWS, settings, runtime), states


def test_b8_evaluating_changes_no_weight_of_any_depth(source: ListSource) -> None:
    """With weights by reach the evaluations do decide: they tell what a round reaches."""
    found = [
        saving(source, change(eval_every=every, step_weights="uniform"))[2][-1].tensors
        for every in (1, 100)
    ]
    names = [name for name in found[0] if name.startswith(("weight/", "moment"))]
    assert names
    for name in names:
        assert torch.equal(found[0][name], found[1][name]), name


def test_c7_the_best_stays_the_best_over_a_resume_that_does_harm(
    source: ListSource,
) -> None:
    calm = saving(source, change(patience=3))
    best = calm[1].best
    assert best.step > 0
    (cut,) = [state for state in calm[2] if len(state.facts.steps) == best.step + 1]
    draft, result, states = saving(source, change(lr=3.0, steps=30, patience=3), resume=cut)
    after = [record for record in result.evaluations if record.step > best.step]
    assert all(record.walk < best.walk for record in after)
    assert result.best == best
    assert len(after) == 3  # patience went on counting, and then it stopped
    kept = {
        n.removeprefix("best/"): t for n, t in states[-1].tensors.items() if "best/" in n
    }
    moved = dict(draft.named_parameters())
    assert kept
    for name, tensor in kept.items():
        assert torch.equal(moved[name], tensor), name
        assert torch.equal(cut.tensors[f"best/{name}"], tensor), name
