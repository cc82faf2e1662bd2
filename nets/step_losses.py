"""The losses of one training step, whatever the layout, over one rank's windows of it.

Axes: C chain steps, or the one kind of input of `rows` and `stride`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from conf.training import TrainSettings
from nets.draft import Draft
from nets.evaluate import Compute
from nets.jobs import KindJobs
from nets.objective import LossSums, chain_sums, objective_of, step_weights
from nets.ranks import Share
from nets.source import Source, read_batch
from nets.training_rows import trained_rows


@dataclass(frozen=True)
class StepLosses:
    """How a batch's losses are made; `by_kind` with `rows` and `stride` only."""

    draft: Draft
    source: Source
    settings: TrainSettings
    compute: Compute
    by_kind: KindJobs | None

    def over(self, windows: Sequence[int], share: Share, step: int, kind: int) -> LossSums:
        """Losses over these windows, `share` of the batch of training step `step`.

        TrainingError for stored rows that aren't finite.
        """
        device = self.draft.shared.head_VH.device
        if not windows:
            return LossSums.nothing(self.entries, device)
        batch = read_batch(self.source, windows, device)
        if self.by_kind is not None:
            return self.by_kind.losses(batch, windows, kind)
        return chain_sums(
            self.draft,
            batch,
            self.settings.depth,
            self.compute,
            trained_rows(self.settings, step, batch, share),
            objective_of(self.settings),
        )

    @property
    def entries(self) -> int:
        """How many losses a step has."""
        return self.settings.depth if self.by_kind is None else 1

    def weights(self, hold_rates: Sequence[float]) -> torch.Tensor:
        """What each counts in the step's own, of sum 1, by the last evaluation's rates."""
        wanted = self.settings.step_weights
        weights = (1.0,) if self.by_kind else step_weights(wanted, hold_rates)
        return torch.tensor(
            weights, dtype=torch.float64, device=self.draft.shared.head_VH.device
        )
