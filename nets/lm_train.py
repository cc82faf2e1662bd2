"""A small language model trained from nothing, by cross entropy: the demo's trunk.

Legend: B windows, T positions, H hidden. The model is described by an `Arch`, so that what
comes out can be written to a container beside the header it was made from.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cmfio.header import Arch
from nets.errors import ModelError, TrainingError
from nets.geometry import nominal_geometry
from nets.hf_layer import empty_base, new_rotary

BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.1
INIT_STD = 0.02
CLIP_NORM = 1.0
WARMUP_SHARE = 0.1
FINAL_SHARE = 0.1


@dataclass(frozen=True)
class LmSettings:
    """Steps, peak learning rate, seed of the initial weights, and the GEMMs' type."""

    steps: int
    lr: float
    seed: int
    dtype: Literal["bf16", "f32"] = "f32"


@dataclass(frozen=True)
class LmStep:
    """A step: number from 1, loss in nats a token, gradient norm before clipping."""

    step: int
    loss: float
    lr: float
    grad_norm: float


def train_lm(
    arch: Arch,
    batches: Iterator[Tensor],
    settings: LmSettings,
    on_step: Callable[[LmStep], None],
) -> dict[str, Tensor]:
    """The trained trunk's tensors by CMF name, f32; the head is tied, so it has none.

    `batches` gives ids [B, T] without padding, one batch a step, on the CPU. The same
    batches, settings and thread count give the same bits; torch's global generator is not
    touched. ModelError if the arch asks for a head of its own, TrainingError at a loss that
    is not finite.
    """
    model = _SmallLm(arch, settings.seed)
    optimiser = _optimiser(model, settings.lr)
    for step in range(1, settings.steps + 1):
        lr = lr_at(step, settings)
        for group in optimiser.param_groups:
            group["lr"] = lr
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.dtype == "bf16"):
            loss = model(next(batches))
        if not torch.isfinite(loss):
            raise TrainingError(
                f"language model training: the loss is {loss.item()} at step {step}; "
                "use a lower learning rate"
            )
        optimiser.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimiser.step()
        on_step(LmStep(step, loss.item(), lr, norm.item()))
    return model.tensors()


def lr_at(step: int, settings: LmSettings) -> float:
    """The rate of a step from 1: linear for the first tenth, then cosine to a tenth."""
    warmup = max(1, int(settings.steps * WARMUP_SHARE))
    if step <= warmup:
        return settings.lr * step / warmup
    done = (step - warmup) / max(1, settings.steps - warmup)
    share = FINAL_SHARE + (1 - FINAL_SHARE) * 0.5 * (1 + math.cos(math.pi * done))
    return settings.lr * share


class _SmallLm(nn.Module):
    """The family's base model with a tied head; its forward is the mean loss of a batch."""

    def __init__(self, arch: Arch, seed: int) -> None:
        super().__init__()
        self.geometry = nominal_geometry(arch)
        if not self.geometry.is_tied:
            raise ModelError(
                "arch.tie_word_embeddings is false; set it: the head is the embedding"
            )
        self.base = empty_base(arch, self.geometry).to_empty(device="cpu")
        self.base.rotary_emb = new_rotary(self.geometry.family, self.base.config, "cpu")
        self._initialise(torch.Generator().manual_seed(seed))

    def forward(self, ids_BT: Tensor) -> Tensor:
        normed_BTH = self.base(input_ids=ids_BT[:, :-1], use_cache=False).last_hidden_state
        logits = nn.functional.linear(
            normed_BTH, self.base.get_parameter("embed_tokens.weight")
        )
        return nn.functional.cross_entropy(
            logits.float().flatten(0, 1), ids_BT[:, 1:].flatten().long()
        )

    def tensors(self) -> dict[str, Tensor]:
        """A copy of the weights by CMF name."""
        return {f"model.{n}": t.detach().clone() for n, t in self.base.state_dict().items()}

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        # As in GPT-2: what writes to the residual starts smaller, so depth doesn't add up.
        residual_std = INIT_STD / math.sqrt(2 * len(self.geometry.layers))
        for name, parameter in self.base.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0)
            else:
                is_output = name.endswith(("o_proj.weight", "down_proj.weight"))
                parameter.normal_(
                    0, residual_std if is_output else INIT_STD, generator=generator
                )


def _optimiser(model: nn.Module, lr: float) -> torch.optim.AdamW:
    """AdamW that decays matrices only: decay on a norm's gain would pull it to 0."""
    decayed = [p for p in model.parameters() if p.dim() > 1]
    gains = [p for p in model.parameters() if p.dim() == 1]
    # torch's own type of a parameter group, hence Any.
    groups: list[dict[str, Any]] = [
        {"params": decayed},
        {"params": gains, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=lr, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
    )
