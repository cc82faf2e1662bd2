"""Which checkpoint wins: the one that holds most drafts, unless the gain may be chance."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from nets.hold import HoldCounts, drafts_held, paired_gain_se

SelectBy = Literal["walk", "starts"]


def is_better(new: HoldCounts, best: HoldCounts, seed: int) -> bool:
    """Whether D(new) beats D(best) by more than one standard error of their difference.

    The error is a bootstrap over the windows, the same for both (healing.md §7).
    """
    gain = drafts_held(new) - drafts_held(best)
    return gain > paired_gain_se(new, best, seed)


class BestCheckpoint:
    """The best weights so far, with the counts they are beaten by."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], seed: int) -> None:
        self.parameters, self.seed = parameters, seed
        self.weights: dict[str, Tensor] = {}
        self.counts: HoldCounts | None = None

    def offer(self, counts: HoldCounts) -> bool:
        """Keep the present weights if they are better, or the first; says whether."""
        if self.counts is not None and not is_better(counts, self.counts, self.seed):
            return False
        self.counts = counts
        self.weights = {name: p.detach().clone() for name, p in self.parameters.items()}
        return True

    @torch.no_grad()
    def restore(self) -> None:
        """Make the best weights the present ones."""
        for name, parameter in self.parameters.items():
            parameter.copy_(self.weights[name])

    def tensors(self) -> dict[str, Tensor]:
        """Copies for a checkpoint; there must have been an offer."""
        assert self.counts is not None
        kept = {f"best/{name}": w.to("cpu", copy=True) for name, w in self.weights.items()}
        kept["counted"] = torch.from_numpy(self.counts.counted_WC.copy())
        kept["hit"] = torch.from_numpy(self.counts.hit_WC.copy())
        return kept

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `tensors` gave."""
        self.counts = HoldCounts(tensors["counted"].numpy(), tensors["hit"].numpy())
        self.weights = {
            name: tensors[f"best/{name}"].to(parameter.device, copy=True)
            for name, parameter in self.parameters.items()
        }
