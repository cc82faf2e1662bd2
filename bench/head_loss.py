"""Row 6: the fused head loss, forward and backward, against autograd over full logits.

`python -m bench.head_loss [--quick]`. 4,096 rows of real text with the trunk's top-64 as
the target, V 49,152, H 576; a step-1 draft that is the trunk itself moved a little.
"""

from functools import partial

import torch
from torch import Tensor

from bench.naive_loss import naive_tail_kl
from bench.real_model import BUDGET_BYTES, real_rows
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
from nets.head import fused_loss

MODULE, ROWS = "bench.head_loss", 4096


def measure(*, quick: bool = False) -> Json:
    """Ratios to the naive losses."""
    real_rows(ROWS)
    said = race(MODULE, ["naive_f32", OURS, "naive_bf16"], rounds_of(quick=quick))
    against_f32 = ratio(said["naive_f32"], said[OURS])
    against_bf16 = ratio(said["naive_bf16"], said[OURS])
    value = {"against f32": against_f32, "against bf16": against_bf16}
    is_met = against_f32 >= 2.9 and against_bf16 >= 1.7
    return {
        "rows": {"6": target(value, "≥ 2.9; ≥ 1.7", met=is_met)},
        "details": {
            "allocator": ALLOCATOR,
            "rows": ROWS,
            "rounds": len(said[OURS]),
            "seconds": {name: median(rounds) for name, rounds in said.items()},
            "loss": {name: rounds[0]["loss"] for name, rounds in said.items()},
        },
    }


def racer(dtype: torch.dtype, *, is_fused: bool) -> Round:
    """One loss in one type of head."""
    rows = real_rows(ROWS)
    head_VH = rows.head_VH.to(dtype)
    noise_RH = torch.randn(rows.normed_RH.shape, generator=torch.Generator().manual_seed(0))
    moved_RH = rows.normed_RH.float() + 0.1 * noise_RH

    def fused(normed_RH: Tensor) -> Tensor:
        id_RK, p_RK = rows.topk_id_RK, rows.topk_p_RK
        return fused_loss("tail_kl", normed_RH, head_VH, id_RK, p_RK, BUDGET_BYTES)

    def naive(normed_RH: Tensor) -> Tensor:
        logits_RV = normed_RH.to(dtype) @ head_VH.T
        return naive_tail_kl(logits_RV, rows.topk_id_RK, rows.topk_p_RK).sum()

    def play(_: int) -> Json:
        normed_RH = moved_RH.clone().requires_grad_()
        losses: list[Tensor] = []

        def step() -> None:
            losses.append((fused if is_fused else naive)(normed_RH))
            torch.autograd.backward(losses[0])

        return {"seconds": seconds(step), "loss": losses[0].item() / ROWS}

    return play


RACERS = {
    OURS: partial(racer, torch.bfloat16, is_fused=True),
    "naive_f32": partial(racer, torch.float32, is_fused=False),
    "naive_bf16": partial(racer, torch.bfloat16, is_fused=False),
}

if __name__ == "__main__":
    main(measure, RACERS)
