"""What a step minimises: every loss, target and gradient path against autograd."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from conf.training import Loss
from nets.chain import unroll_exact
from nets.draft import Draft
from nets.evaluate import Compute
from nets.losses import lk, tail_kl, topk_kl, tv
from nets.objective import Objective, chain_sums, step_weights
from tests.builders import tiny_qwen3
from tests.test_nets.chain_source import ListSource, draft_of, jitter, own_windows
from tests.test_nets.test_training import gradients

torch.set_num_threads(1)

LOSSES = {"tail_kl": tail_kl, "topk_kl": topk_kl, "tv": tv, "lk": lk}


def plain_objective(
    draft: Draft, source: ListSource, windows: Sequence[int], objective: Objective
) -> Tensor:
    """Each step's mean over full logits, with the target and gradient of an objective."""
    batch, losses = source.batch(windows), []
    given = (draft, batch.ids_BT, batch.length_B, batch.hidden_BTH, 3)
    for step in unroll_exact(*given, through_chain=objective.through_chain):
        at_R = step.alive_BT.flatten().nonzero().squeeze(1)
        target_RK = batch.topk_p_BTK.flatten(0, 1)[at_R + step.step].clone()
        mass_R = target_RK.sum(1)
        target_RK *= 1 - objective.hard
        target_RK[:, 0] += objective.hard * mass_R
        id_RK = batch.topk_id_BTK.flatten(0, 1)[at_R + step.step]
        row_H = draft.read_out(step.output_BTH.flatten(0, 1)[at_R])
        one = LOSSES[objective.loss](row_H @ draft.shared.head_VH.T, id_RK, target_RK)
        losses.append(one.mean())
    return torch.stack(losses)


@pytest.mark.parametrize("loss", ["tail_kl", "topk_kl", "tv", "lk"])
@pytest.mark.parametrize(("hard", "through"), [(0.0, True), (0.3, False)])
def test_every_objective_s_gradient_is_autograd_s(
    *, loss: Loss, hard: float, through: bool
) -> None:
    draft = draft_of(tiny_qwen3())
    draft.trainable("all")
    source = own_windows(draft, (9, 6), 9)
    jitter(draft, 0.3)
    objective = Objective(loss, hard, through)
    weight_C = torch.tensor([1.0, 0.5, 0.2])
    plain_C = plain_objective(draft, source, (0, 1), objective)
    plain = gradients(draft, (weight_C * plain_C).sum())
    compute = Compute(2, "f32", 1)
    fused_C = chain_sums(draft, source.batch((0, 1)), 3, compute, None, objective).means()
    fused = gradients(draft, (weight_C * fused_C).sum())
    assert fused_C.tolist() == pytest.approx(plain_C.tolist(), rel=1e-5)
    for name, expected in plain.items():
        off = (fused[name] - expected).abs().max() / expected.abs().max()
        assert off.item() < 1e-4, name


def test_through_the_chain_another_gradient_flows() -> None:
    draft = draft_of(tiny_qwen3())
    draft.trainable("all")
    source = own_windows(draft, (9, 6), 9)
    jitter(draft, 0.3)
    compute, batch = Compute(2, "f32", 1), source.batch((0, 1))
    found = [
        gradients(draft, chain_sums(draft, batch, 3, compute, None, o).means()[2])
        for o in (Objective(), Objective(through_chain=True))
    ]
    assert any((found[0][name] - found[1][name]).abs().max() > 1e-6 for name in found[0])


def test_step_weights_sum_to_one() -> None:
    assert step_weights("reach", (0.5, 0.5, 0.9)) == pytest.approx([4 / 7, 2 / 7, 1 / 7])
    assert step_weights("uniform", (0.5, 0.5)) == (0.5, 0.5)
    assert step_weights((3.0, 1.0, 0.0), (0.1, 0.2, 0.3)) == (0.75, 0.25, 0.0)
