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
from nets.ranks import ALONE, Ranks
from nets.source import Batch, ChainRows, take_rows


@dataclass(frozen=True)
class Objective:
    """A loss towards the trunk's top-k, of which `hard` goes to the trunk's own token.

    `through_chain` lets the gradient of a step reach the steps before it.
    """

    loss: Loss = "tail_kl"
    hard: float = 0.0
    through_chain: bool = False

    def total(self, draft: Draft, rows: ChainRows, budget_bytes: int) -> Tensor:
        """Sum of the loss over rows of one chain step, an f64 scalar with a gradient."""
        return fused_loss(
            self.loss,
            draft.read_out(rows.output_RH),
            draft.shared.head_VH,
            rows.topk_id_RK,
            hard_targets(rows.topk_p_RK, self.hard),
            budget_bytes,
        )


TAIL_KL = Objective()


@dataclass(frozen=True)
class LossSums:
    """Losses of chain steps, or of one kind of input, summed over rows; f64 [C] each.

    `total_C` has a gradient. A rank without windows has neither rows nor a gradient.
    """

    total_C: Tensor
    rows_C: Tensor

    @classmethod
    def of(cls, totals: Sequence[Tensor], rows: Sequence[int]) -> "LossSums":
        """These sums over so many rows."""
        total_C = torch.stack(list(totals))
        return cls(total_C, total_C.new_tensor(rows))

    @classmethod
    def nothing(cls, steps: int, device: torch.device) -> "LossSums":
        """No rows."""
        zeros_C = torch.zeros(steps, dtype=torch.float64, device=device)
        return cls(zeros_C, zeros_C.clone())

    def means(self, ranks: Ranks = ALONE) -> Tensor:
        """What these rows add to the mean over the rows of all ranks: [C], 0 without any.

        Summed over the ranks it is that mean, and so are the gradients.
        """
        return self.total_C / ranks.sum_(self.rows_C.clone()).clamp_min(1)


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


def chain_sums(
    draft: Draft,
    batch: Batch,
    depth: int,
    compute: Compute,
    chosen_BTC: Tensor | None = None,
    objective: Objective = TAIL_KL,
) -> LossSums:
    """The loss of each chain step over its rows.

    `chosen_BTC` says which of them go through the head (`trained_rows`); None: all.
    """
    totals, counts = [], []
    with compute.autocast(batch.ids_BT.device):
        for step in batch.chains(draft, depth, through_chain=objective.through_chain):
            chosen_BT = step.alive_BT
            if chosen_BTC is not None:
                chosen_BT = chosen_BT & chosen_BTC[:, :, step.step - 1]
            rows = take_rows(batch, step, chosen_BT)
            totals.append(objective.total(draft, rows, compute.budget_bytes))
            counts.append(len(rows.at_R))
    return LossSums.of(totals, counts)
