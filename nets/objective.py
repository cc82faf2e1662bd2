"""What a training step minimises: a loss, its target, and how chain steps are weighted.

Axes: B windows, T positions, C chain steps, R rows, K kept tokens. healing.md §8.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from conf.training import Loss, StepWeights, TrainSettings
from nets.draft import Draft
from nets.evaluate import Compute
from nets.head import fused_loss
from nets.hold import reach
from nets.losses import hard_targets
from nets.source import Batch, ChainRows, take_rows


@dataclass(frozen=True)
class Objective:
    """A loss towards the trunk's top-k, of which `hard` goes to the trunk's own token.

    `through_chain` lets the gradient of a step reach the steps before it.
    """

    loss: Loss = "tail_kl"
    hard: float = 0.0
    through_chain: bool = False

    def mean(self, draft: Draft, rows: ChainRows, budget_bytes: int) -> Tensor:
        """Mean loss of the rows of one chain step, an f64 scalar with a gradient."""
        total = fused_loss(
            self.loss,
            draft.read_out(rows.output_RH),
            draft.shared.head_VH,
            rows.topk_id_RK,
            hard_targets(rows.topk_p_RK, self.hard),
            budget_bytes,
        )
        return total / max(len(rows.at_R), 1)


TAIL_KL = Objective()


def objective_of(settings: TrainSettings) -> Objective:
    """The objective that these settings ask for."""
    return Objective(settings.loss, settings.hard, settings.through_chain)


def step_weights(wanted: StepWeights, hold_rates: Sequence[float]) -> tuple[float, ...]:
    """Weights of the chain steps, of sum 1.

    `reach` is the probability that a round gets to each, by the last evaluation's rates.
    """
    if wanted == "reach":
        weights = reach(hold_rates)
    elif wanted == "uniform":
        weights = (1.0,) * len(hold_rates)
    else:
        weights = wanted
    return tuple(weight / sum(weights) for weight in weights)


def chain_losses(
    draft: Draft,
    batch: Batch,
    depth: int,
    compute: Compute,
    chosen_BTC: Tensor | None = None,
    objective: Objective = TAIL_KL,
) -> Tensor:
    """Mean loss of each chain step over its rows, f64 [C], with a gradient.

    `chosen_BTC` says which of them go through the head (`trained_rows`); None: all.
    """
    losses = []
    with compute.autocast(batch.ids_BT.device):
        for step in batch.chains(draft, depth, through_chain=objective.through_chain):
            chosen_BT = step.alive_BT
            if chosen_BTC is not None:
                chosen_BT = chosen_BT & chosen_BTC[:, :, step.step - 1]
            rows = take_rows(batch, step, chosen_BT)
            losses.append(objective.mean(draft, rows, compute.budget_bytes))
    return torch.stack(losses)
