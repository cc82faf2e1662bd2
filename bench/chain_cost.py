"""Row 8: a step with its whole chain unrolled, in units of a step of one; and its error.

`python -m bench.chain_cost [--quick]`. Both are whole steps, Adam included, on the windows
of row 7. The error is the largest one of the chains' outputs in f32 against decode rounds
run one by one in f64 (`tests.oracles.rounds`), on the first rows of the text. A value in a
SmolLM2 row reaches thousands, so it is in units of the row's own rms; beside it that of
the rows which the head reads.
"""

from functools import partial

import numpy as np
import torch

from bench.draft_step import unrolled
from bench.real_draft import (
    BATCH,
    DEPTH,
    QUICK_WIDTH,
    WIDTH,
    fresh_tensors,
    real_batch,
    real_draft,
    width_of,
)
from bench.turns import (
    ALLOCATOR,
    OURS,
    Json,
    main,
    median,
    race,
    ratio,
    rounds_of,
    target,
)
from nets.chain import unroll_exact
from tests.oracles.rounds import all_rounds
from tests.oracles.trunk import Plain

MODULE = "bench.chain_cost"
CHECKED = 20  # rows of the brute force, which is quadratic in them


def measure(*, quick: bool = False) -> Json:
    """Cost in steps, and the error against brute force."""
    width = width_of(quick=quick)
    real_batch(width)
    error = largest_error(width)
    size = "quick" if quick else "whole"
    names = [f"{OURS}_chain-{size}", f"{OURS}_single-{size}"]
    said = race(MODULE, names, rounds_of(quick=quick))
    cost = ratio(said[names[0]], said[names[1]])
    value = {"steps": cost, "error": error["of the block's rows, in their rms"]}
    is_met = cost <= 3.2 and value["error"] <= 1e-5
    return {
        "rows": {"8": target(value, "≤ 3.2; ≤ 1e-5", met=is_met)},
        "details": {
            "allocator": ALLOCATOR,
            "windows": [BATCH, width],
            "rounds": len(said[names[0]]),
            "seconds": {name: median(rounds) for name, rounds in said.items()},
            "largest error": error,
        },
    }


@torch.no_grad()
def largest_error(width: int) -> Json:
    """Over all starts and steps of the first rows: of the block's output, of its norm."""
    draft = real_draft(fresh_tensors(), torch.float32)
    batch, arch = real_batch(width), draft.shared.arch
    ids_1T = batch.ids_BT[:1, :CHECKED]
    hidden_1TH = batch.hidden_BTH[:1, :CHECKED].float()
    plain = Plain(0, arch.head_dim, arch.rms_norm_eps, arch.rope_theta)
    tensors = {name: tensor.double().numpy() for name, tensor in draft.tensors().items()}
    tensors["model.embed_tokens.weight"] = draft.shared.embed_VH.double().numpy()
    rounds = all_rounds(
        ids_1T[0].tolist(), hidden_1TH[0].double().numpy(), DEPTH, tensors, plain
    )
    block, head = 0.0, 0.0
    chain = unroll_exact(draft, ids_1T, torch.tensor([CHECKED]), hidden_1TH, DEPTH)
    for step in chain:
        for start in range(CHECKED - step.step):
            row_H = step.output_BTH[0, start].double()
            due_H = torch.from_numpy(np.asarray(rounds[start, step.step]))
            rms = due_H.square().mean().sqrt()
            block = max(block, float((row_H - due_H).abs().max() / rms))
            read_H = draft.read_out(torch.stack([row_H, due_H]))
            head = max(head, float((read_H[0] - read_H[1]).abs().max()))
    return {"of the block's rows, in their rms": block, "of the head's rows": head}


RACERS = {
    f"{OURS}_{name}-{size}": partial(unrolled, width, depth=depth)
    for size, width in (("quick", QUICK_WIDTH), ("whole", WIDTH))
    for name, depth in (("chain", DEPTH), ("single", 1))
}

if __name__ == "__main__":
    main(measure, RACERS)
