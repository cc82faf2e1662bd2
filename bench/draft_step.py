"""Row 7: a whole draft step, Adam included, against autograd over full logits.

`python -m bench.draft_step [--quick]`. 2 × 2,048 rows of real text (2 × 512 if quick), a
fresh draft of SmolLM2. Beside it the rows × chain steps a second that train: unrolled
exactly, by the reference's scheme with our kernels (a step for each chain step, on inputs
that a refresh of all windows brings up to date), and naively.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from bench.naive_loss import naive_tail_kl
from bench.real_draft import (
    BATCH,
    DEPTH,
    QUICK_WIDTH,
    RATE,
    WIDTH,
    adam_of,
    compute,
    fresh_tensors,
    real_batch,
    real_draft,
    train_step,
    width_of,
)
from bench.turns import (
    ALLOCATOR,
    OURS,
    Json,
    Round,
    main,
    median,
    race,
    ratio,
    rounds_of,
    seconds,
    target,
)
from nets.chain import ChainStep
from nets.draft import Draft
from nets.objective import Objective
from nets.source import Batch, take_rows

MODULE = "bench.draft_step"
UNROLLED, SEPARATE = f"{OURS}_unrolled", f"{OURS}_separate"
TRAINED_WINDOWS, REFRESH = 192, 150  # the reference's cap a data set, and its steps
NAIVE = ("naive_f32", "naive_bf16")


def measure(*, quick: bool = False) -> Json:
    """Ratios to the naive steps; rows × chain steps a second of each scheme."""
    real_batch(width_of(quick=quick))
    fresh_tensors()
    size = "quick" if quick else "whole"
    order = ["naive_f32", OURS, UNROLLED, SEPARATE, "naive_bf16"]
    raced = race(MODULE, [f"{name}-{size}" for name in order], rounds_of(quick=quick))
    said = dict(zip(order, raced.values(), strict=True))
    against_f32, against_bf16 = (ratio(said[name], said[OURS]) for name in NAIVE)
    value = {"against f32": against_f32, "against bf16": against_bf16}
    is_met = against_f32 >= 3 and against_bf16 >= 1.8
    return {
        "rows": {"7": target(value, "≥ 3; ≥ 1.8", met=is_met)},
        "details": {
            "allocator": ALLOCATOR,
            "windows": [BATCH, width_of(quick=quick)],
            "rounds": len(said[OURS]),
            "seconds": {name: median(rounds) for name, rounds in said.items()},
            "loss": {name: rounds[0]["loss"] for name, rounds in said.items()},
            "row-steps a second": {
                name: median(rounds, "rows") / median(rounds)
                for name, rounds in said.items()
            },
            "refresh, share of a separate step": median(said[SEPARATE], "refresh"),
        },
    }


def unrolled(width: int, *, depth: int) -> Round:
    """Ours: one step of this many chain steps."""
    batch, draft = real_batch(width), real_draft(fresh_tensors(), torch.bfloat16)
    draft.trainable("all")
    adam = adam_of(draft)

    def play(_: int) -> Json:
        losses: list[Tensor] = []
        spent = seconds(lambda: losses.append(train_step(draft, adam, batch, depth)))
        return {
            "seconds": spent,
            "rows": trained_rows(width, depth),
            "loss": losses[0].mean().item(),
        }

    return play


def separate(width: int) -> Round:
    """The reference's scheme: a step each for the chain's, and their share of a refresh."""
    batch, draft = real_batch(width), real_draft(fresh_tensors(), torch.bfloat16)
    draft.trainable("block")  # its inputs are made beforehand, through the rest
    adam, objective = adam_of(draft), Objective()
    position_1T = torch.arange(width)[None]

    def step(stored_BTH: Tensor, number: int) -> Tensor:
        with compute().autocast(stored_BTH.device):
            output_BTH = draft.block(stored_BTH.float(), position_1T)
            laid = ChainStep(number, output_BTH, alive(batch, number))
            rows = take_rows(batch, laid, laid.alive_BT)
            loss = objective.total(draft, rows, compute().budget_bytes) / len(rows.at_R)
        torch.autograd.backward(loss)
        adam.clip(1.0)
        adam.step(RATE)
        adam.drop_gradients()
        return loss.detach()

    def play(_: int) -> Json:
        inputs: list[Tensor] = []
        once = seconds(lambda: inputs.extend(refreshed(draft, batch)))
        losses: list[Tensor] = []
        spent = seconds(
            lambda: losses.extend(step(x_BTH, j) for j, x_BTH in enumerate(inputs, 1))
        )
        share = once * TRAINED_WINDOWS / BATCH * DEPTH / REFRESH
        return {
            "seconds": spent + share,
            "rows": trained_rows(width, DEPTH),
            "refresh": share / spent,
            "loss": torch.stack(losses).mean().item(),
        }

    return play


@torch.no_grad()
def refreshed(draft: Draft, batch: Batch) -> list[Tensor]:
    """Input rows of every chain step, f16: each forward reads the output of the last."""
    position_1T = torch.arange(batch.ids_BT.shape[1])[None]
    inputs: list[Tensor] = []
    carried_BTH = batch.hidden_BTH
    with compute().autocast(batch.ids_BT.device):
        for step in range(1, DEPTH + 1):
            if inputs:
                carried_BTH = draft.block(inputs[-1].float(), position_1T)
            token_BT = batch.ids_BT.roll(-step, 1)
            x_BTH = draft.fuse(token_BT, carried_BTH)
            inputs.append((x_BTH * alive(batch, step)[:, :, None]).half())
    return inputs


def alive(batch: Batch, step: int) -> Tensor:
    """Rows p for which row p + step exists."""
    return torch.arange(batch.ids_BT.shape[1]) + step < batch.length_B[:, None]


def trained_rows(width: int, depth: int) -> int:
    """Rows × chain steps of one batch."""
    return sum(BATCH * (width - step) for step in range(1, depth + 1))


def naive(width: int, *, dtype: torch.dtype) -> Round:
    """As usually written: weights and head of one type, all logits, autograd, Adam."""
    batch, draft = real_batch(width), real_draft(fresh_tensors(), dtype)
    draft.to(dtype).trainable("all")
    adam = torch.optim.Adam(draft.parameters(), lr=RATE)
    position_1T, head_VH = torch.arange(width)[None], draft.shared.head_VH
    next_BT = batch.ids_BT.roll(-1, 1)
    id_RK = batch.topk_id_BTK[:, 1:].flatten(0, 1)
    p_RK = batch.topk_p_BTK[:, 1:].flatten(0, 1)

    def step() -> Tensor:
        embedded_BTH = torch.nn.functional.embedding(next_BT, draft.shared.embed_VH)
        halves = [draft.enorm(embedded_BTH), draft.hnorm(batch.hidden_BTH.to(dtype))]
        x_BTH = draft.eh_proj(torch.cat(halves, dim=-1))
        output_BTH = draft.block(x_BTH, position_1T)
        logits_RV = draft.read_out(output_BTH[:, :-1]).flatten(0, 1) @ head_VH.T
        loss = naive_tail_kl(logits_RV, id_RK, p_RK).mean()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
        adam.step()
        adam.zero_grad()
        return loss.detach()

    def play(_: int) -> Json:
        losses: list[Tensor] = []
        spent = seconds(lambda: losses.append(step()))
        return {
            "seconds": spent,
            "rows": trained_rows(width, 1),
            "loss": losses[0].item(),
        }

    return play


KINDS: dict[str, Callable[[int], Round]] = {
    OURS: partial(unrolled, depth=1),
    UNROLLED: partial(unrolled, depth=DEPTH),
    SEPARATE: separate,
    "naive_f32": partial(naive, dtype=torch.float32),
    "naive_bf16": partial(naive, dtype=torch.bfloat16),
}
RACERS = {
    f"{name}-{size}": partial(build, width)
    for size, width in (("quick", QUICK_WIDTH), ("whole", WIDTH))
    for name, build in KINDS.items()
}

if __name__ == "__main__":
    main(measure, RACERS)
