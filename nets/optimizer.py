"""Adam as the reference has it, or Muon for the matrices, behind one clipped gradient.

Adam (arXiv:1412.6980): β 0.9 / 0.999, ε 1e-8, no decay. Muon (torch.optim, after
kellerjordan.github.io/posts/muon): momentum 0.95, Nesterov, no decay, its steps as large as
Adam's at the same rate (arXiv:2502.16982); vectors and stacks of matrices stay with Adam.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from conf.training import OptimizerKind

CLIP_NORM = 1.0


class NamedOptimizer:
    """An optimiser of named parameters, with its state laid open for checkpoints."""

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], kind: OptimizerKind = "adam"
    ) -> None:
        self.parameters = parameters
        self._steps: list[Tensor] = []
        self._moments: dict[str, dict[str, Tensor]] = {}
        by_muon = {n: p for n, p in parameters.items() if kind == "muon" and p.ndim == 2}
        by_adam = {n: p for n, p in parameters.items() if n not in by_muon}
        self._parts = [
            *([self._adam(by_adam)] if by_adam else []),
            *([self._muon(by_muon)] if by_muon else []),
        ]

    def _adam(self, parameters: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
        adam = torch.optim.Adam([*parameters.values()], fused=True)
        for name, parameter in parameters.items():
            step = torch.zeros((), device=parameter.device)
            first, second = torch.zeros_like(parameter), torch.zeros_like(parameter)
            adam.state[parameter] = {"step": step, "exp_avg": first, "exp_avg_sq": second}
            self._steps.append(step)
            self._moments[name] = {"moment1": first, "moment2": second}
        return adam

    def _muon(self, parameters: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
        muon = torch.optim.Muon(
            [*parameters.values()], weight_decay=0.0, adjust_lr_fn="match_rms_adamw"
        )
        for name, parameter in parameters.items():
            momentum = torch.zeros_like(parameter)
            muon.state[parameter] = {"momentum_buffer": momentum}
            self._moments[name] = {"momentum": momentum}
        return muon

    def clip(self, loss_scale: float) -> Tensor:
        """Unscale and clip the gradients; their global norm between the two."""
        for parameter in self.parameters.values():
            if parameter.grad is not None:
                parameter.grad /= loss_scale
        norm: Tensor = nn.utils.clip_grad_norm_(self.parameters.values(), CLIP_NORM)
        return norm

    def step(self, lr: float) -> None:
        """Move the weights by their gradients."""
        for part in self._parts:
            part.param_groups[0]["lr"] = lr
            part.step()

    def drop_gradients(self) -> None:
        """Forget the gradients."""
        for part in self._parts:
            part.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """Copies of weights and moments for a checkpoint, on the CPU."""
        kept = {}
        for name, parameter in self.parameters.items():
            kept[f"weight/{name}"] = parameter.detach().to("cpu", copy=True)
            for moment, tensor in self._moments[name].items():
                kept[f"{moment}/{name}"] = tensor.to("cpu", copy=True)
        return kept

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """Go on from what `tensors` gave after `step` steps."""
        for counter in self._steps:
            counter.fill_(step)
        for name, parameter in self.parameters.items():
            parameter.copy_(tensors[f"weight/{name}"])
            for moment, tensor in self._moments[name].items():
                tensor.copy_(tensors[f"{moment}/{name}"])
