"""Drafts of SmolLM2 and windows of real text with its trunk's rows, each made once.

The draft starts as a copy of the last layer; where it has to hold something it is trained
first, on other windows than the measured ones. Axes: B windows, T positions.
"""

from typing import cast

import torch
from torch import Tensor

from bench.real_model import BUDGET_BYTES, KEPT, model_path, trunk, windows
from bench.turns import FOLDER
from cmfio.models import open_weights
from nets.draft import Draft, draft_from, fresh_draft_tensors, last_input_rms
from nets.evaluate import Compute
from nets.head import topk_rows
from nets.objective import chain_sums
from nets.optimizer import NamedOptimizer
from nets.schedule import learning_rate
from nets.source import Batch
from nets.trunk import build_shared
from tasks.model_file import weights_of

DEPTH = 3
BATCH, WIDTH, QUICK_WIDTH = 2, 2048, 512
RATE = 2e-5  # the reference's; a fresh draft is trained at FRESH_RATE
FRESH_RATE = 3e-3
# Windows and width of what a draft is trained on, and the steps of two windows it takes.
TRAINING = {False: (128, 512, 256), True: (32, 512, 48)}

Tensors = dict[str, Tensor]


def width_of(*, quick: bool) -> int:
    """Positions of a window."""
    return QUICK_WIDTH if quick else WIDTH


def compute(batch: int = BATCH) -> Compute:
    """How `heal` runs a draft here."""
    return Compute(batch, "bf16", BUDGET_BYTES)


def real_batch(width: int) -> Batch:
    """The first two windows of the text, the trunk's rows in bf16 as a pass keeps them."""
    return _rows_of("measured", windows(BATCH, width))


def fresh_tensors() -> Tensors:
    """A draft that starts from the trunk's last layer."""
    path = FOLDER / "draft-fresh.pt"
    if not path.exists():
        rms = last_input_rms(trunk(torch.bfloat16), windows(BATCH, QUICK_WIDTH))
        with open_weights(model_path()) as model:
            weights = weights_of(model)
            arch, shapes = model.header.arch, weights.shapes
            torch.save(fresh_draft_tensors(arch, shapes, weights.read, rms), path)
    return cast(Tensors, torch.load(path))


def trained_tensors(*, quick: bool) -> Tensors:
    """The fresh draft after some steps on windows behind the measured ones."""
    count, width, steps = TRAINING[quick]
    path = FOLDER / f"draft-{steps}.pt"
    if not path.exists():
        unread = BATCH * WIDTH // width  # windows of this width in the measured text
        ids_BT = windows(unread + count, width)[unread:]
        draft = real_draft(fresh_tensors(), torch.bfloat16)
        _train(draft, _rows_of("training", ids_BT), steps)
        torch.save(draft.tensors(), path)
    return cast(Tensors, torch.load(path))


def real_draft(tensors: Tensors, dtype: torch.dtype) -> Draft:
    """The draft in f32, its trunk's embedding and head in `dtype`."""
    with open_weights(model_path()) as model:
        weights = weights_of(model)
        arch, shapes = model.header.arch, weights.shapes
        shared = build_shared(arch, shapes, weights.read, device="cpu", dtype=dtype)
    return draft_from(tensors, shared)


def adam_of(draft: Draft) -> NamedOptimizer:
    """The optimiser over all of a draft that is trained."""
    return NamedOptimizer({n: p for n, p in draft.named_parameters() if p.requires_grad})


def train_step(
    draft: Draft, adam: NamedOptimizer, batch: Batch, depth: int, lr: float = RATE
) -> Tensor:
    """One whole step of ours, as `fit` does it; the loss of each chain step, f64 [C]."""
    loss_C = chain_sums(draft, batch, depth, compute()).means()
    torch.autograd.backward(loss_C.mean())
    adam.clip(1.0)
    adam.step(lr)
    adam.drop_gradients()
    return loss_C.detach()


def part_of(batch: Batch, at: slice) -> Batch:
    """Some windows of a batch."""
    return Batch(
        batch.ids_BT[at],
        batch.length_B[at],
        batch.hidden_BTH[at],
        batch.topk_id_BTK[at],
        batch.topk_p_BTK[at],
    )


def _train(draft: Draft, batch: Batch, steps: int) -> None:
    draft.trainable("all")
    adam, pairs = adam_of(draft), len(batch.ids_BT) // BATCH
    for step in range(1, steps + 1):
        at = (step - 1) % pairs * BATCH
        lr = learning_rate(step, steps, FRESH_RATE)
        train_step(draft, adam, part_of(batch, slice(at, at + BATCH)), DEPTH, lr)


def _rows_of(name: str, ids_BT: Tensor) -> Batch:
    count, width = ids_BT.shape
    path = FOLDER / f"batch-{name}-{count}x{width}.pt"
    if not path.exists():
        model = trunk(torch.bfloat16)
        parts = [model.hidden(ids_BT[at : at + BATCH]) for at in range(0, count, BATCH)]
        hidden_BTH = torch.cat(parts)
        normed_RH = model.final_norm(hidden_BTH).flatten(0, 1)
        top = topk_rows(normed_RH, model.shared.head_VH, KEPT, BUDGET_BYTES)
        shape = (count, width, KEPT)
        id_BTK, p_BTK = top.id_RK.long().view(shape), top.p_RK.view(shape)
        torch.save((hidden_BTH.bfloat16(), id_BTK, p_BTK), path)
    hidden_BTH, id_BTK, p_BTK = torch.load(path)
    return Batch(ids_BT, torch.full((count,), width), hidden_BTH, id_BTK, p_BTK)
