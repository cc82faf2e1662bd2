"""Adam as the reference has it: β 0.9 / 0.999, ε 1e-8, no decay, norm clipped to 1."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

CLIP_NORM = 1.0
MOMENTS = {"moment1": "exp_avg", "moment2": "exp_avg_sq"}


class NamedAdam:
    """Adam over named parameters, with its state laid open for checkpoints."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.parameters = parameters
        self.adam = torch.optim.Adam(list(parameters.values()), fused=True)
        for parameter in parameters.values():
            self.adam.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def clip(self, loss_scale: float) -> Tensor:
        """Unscale and clip the gradients; their global norm between the two."""
        for parameter in self.parameters.values():
            if parameter.grad is not None:
                parameter.grad /= loss_scale
        norm: Tensor = nn.utils.clip_grad_norm_(self.parameters.values(), CLIP_NORM)
        return norm

    def step(self, lr: float) -> None:
        """Move the weights by their gradients."""
        self.adam.param_groups[0]["lr"] = lr
        self.adam.step()

    def drop_gradients(self) -> None:
        """Forget the gradients."""
        self.adam.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """Copies of weights and moments for a checkpoint, on the CPU."""
        kept = {}
        for name, parameter in self.parameters.items():
            kept[f"weight/{name}"] = parameter.detach().to("cpu", copy=True)
            for moment, key in MOMENTS.items():
                kept[f"{moment}/{name}"] = self.adam.state[parameter][key].to(
                    "cpu", copy=True
                )
        return kept

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """Go on from what `tensors` gave after `step` steps."""
        for name, parameter in self.parameters.items():
            parameter.copy_(tensors[f"weight/{name}"])
            state = self.adam.state[parameter]
            state["step"].fill_(step)
            for moment, key in MOMENTS.items():
                state[key].copy_(tensors[f"{moment}/{name}"])
