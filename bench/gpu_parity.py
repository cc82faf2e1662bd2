"""Every family on a device against the processor: rows, top-k, loss and gradient in f32.

Tiny random models. In bf16 the device is held against the processor's f32, for what a
round-off costs there. Axes: B windows, T positions, H hidden, R rows, C chain steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from bench.gpu_clock import Clock
from bench.turns import Json
from cmfio.models import open_weights
from nets.candidates import TopK
from nets.draft import build_draft
from nets.evaluate import Compute
from nets.head import topk_rows
from nets.objective import chain_sums
from nets.source import Batch
from nets.trunk import build_trunk
from tasks.model_file import weights_of
from tests.tiny_checkpoints import TINY, VOCAB, make_checkpoint

BUDGET_BYTES, KEPT, DEPTH, WINDOWS, WIDTH = 16 << 20, 16, 3, 2, 48
NEEDS_S = 6.0  # a family, the first of them with the device's libraries
# f32 sums of some hundred terms, in another order: 2**-23 times a few hundred.
MOST_APART = {"rows": 1e-4, "log-sum-exp": 1e-4, "loss": 1e-4, "gradient": 1e-3}


@dataclass(frozen=True)
class Seen:
    """What a family's model gave on a device, brought to the CPU in f32."""

    hidden_BTH: Tensor
    top: TopK
    loss_C: Tensor
    gradient: Tensor  # of all the draft's weights, end to end


def parity(families: list[str], device: str, clock: Clock) -> Json:
    """How far apart device and processor are, a family each; `failed` says which ones."""
    found: Json = {}
    for family in families:
        if clock.allows(f"parity of {family}", NEEDS_S):
            found[family] = _compared(family, device)
    failed = [name for name, one in found.items() if "error" in one or too_far(one)]
    return {"families": found, "limits": MOST_APART, "failed": failed}


def too_far(one: Json) -> list[str]:
    """The names under which a family is further apart than it may be."""
    return [name for name, most in MOST_APART.items() if not one[name] <= most]


def distances(own: Seen, other: Seen) -> Json:
    """Relative to the other's own size; log-sum-exp in nats, the best token as a share."""
    same = own.top.id_RK[:, 0] == other.top.id_RK[:, 0]
    difference = own.top.logsumexp_R - other.top.logsumexp_R
    return {
        "rows": _relative(own.hidden_BTH, other.hidden_BTH),
        "best token": float(same.float().mean()),
        "log-sum-exp": float(difference.abs().max()),
        "loss": _relative(own.loss_C, other.loss_C),
        "gradient": _relative(own.gradient, other.gradient),
    }


def _compared(family: str, device: str) -> Json:
    with TemporaryDirectory() as made:
        folder = make_checkpoint(Path(made) / family, family)
        reference = see(folder, "cpu", torch.float32)
        try:
            close = distances(see(folder, device, torch.float32), reference)
            low = distances(see(folder, device, torch.bfloat16), reference)
        except RuntimeError as error:  # a kernel that the device has not, in torch's words
            return {"error": str(error).splitlines()[0]}
    return {**close, "in bf16": low}


def see(folder: Path, device: str, dtype: torch.dtype) -> Seen:
    """Runs a checkpoint's trunk and draft on fixed random ids."""
    generator = torch.Generator().manual_seed(0)
    ids_BT = torch.randint(VOCAB, (WINDOWS, WIDTH), generator=generator)
    with open_weights(folder) as model:
        weights, arch = weights_of(model), model.header.arch
        trunk = build_trunk(arch, weights.shapes, weights.read, device=device, dtype=dtype)
        draft = build_draft(arch, weights.shapes, weights.read, trunk.shared)
    draft.trainable("all")
    hidden_BTH = trunk.hidden(ids_BT)
    normed_RH = trunk.final_norm(hidden_BTH).flatten(0, 1)
    top = topk_rows(normed_RH, trunk.shared.head_VH, KEPT, BUDGET_BYTES)
    batch = Batch(
        ids_BT,
        torch.full((WINDOWS,), WIDTH),
        hidden_BTH.to(dtype),
        top.id_RK.long().view(WINDOWS, WIDTH, KEPT),
        top.p_RK.view(WINDOWS, WIDTH, KEPT),
    ).to(torch.device(device))
    compute = Compute(WINDOWS, "bf16" if dtype == torch.bfloat16 else "f32", BUDGET_BYTES)
    loss_C = chain_sums(draft, batch, DEPTH, compute).means()
    torch.autograd.backward(loss_C.mean())
    gradient = torch.cat([part.flatten().float().cpu() for part in _gradients(draft)])
    kept = TopK(top.id_RK.cpu(), top.p_RK.cpu(), top.logsumexp_R.cpu())
    return Seen(hidden_BTH.float().cpu(), kept, loss_C.detach().cpu(), gradient)


def _gradients(draft: torch.nn.Module) -> Iterator[Tensor]:
    for parameter in draft.parameters():
        yield torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _relative(own: Tensor, other: Tensor) -> float:
    return float((own - other).double().norm() / other.double().norm())


FAMILIES = list(TINY)
