"""Rows 1 to 4: the trunk pass against `transformers`, a window of 2,048 tokens a round.

`python -m bench.trunk_pass [--quick]`. Ours is what `trunk_pass` runs for a long pass:
bf16, layers compiled, raw rows, top-64 exactly rescored, log-sum-exp. The naive pass is the
model's own forward, `softmax` and `topk` over its logits; it keeps no raw rows. What
compiling took is charged to ours as for a pass of 200,000 tokens. The GEMM rates are timed
in the same rounds: a bf16 pass cannot gain more than their ratio where GEMM is all.
"""

import resource
import statistics
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from bench.real_model import BUDGET_BYTES, KEPT, model_path, peer, trunk, windows
from bench.turns import (
    ALLOCATOR,
    FOLDER,
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
from nets.candidates import TopK, exact_logits
from nets.head import topk_rows

MODULE, WIDTH, PASS_TOKENS = "bench.trunk_pass", 2048, 200_000
GEMM = (2048, 576, 3072)
TOKEN_FLOPS = 340e6  # layers 212 M, causal attention at T = 2,048 71 M, head 57 M


def measure(*, quick: bool = False) -> Json:
    """Ratios, agreement with f32, and where the limit is."""
    model_path()
    said = race(MODULE, ["naive_f32", OURS, "naive_bf16", "gemm"], rounds_of(quick=quick))
    ours, gemm = said[OURS], said["gemm"]
    against_f32 = ratio(said["naive_f32"], ours)
    against_bf16 = ratio(said["naive_bf16"], ours)
    agreement, kl = median(ours, "agreement"), median(ours, "kl")
    rates = {name: median(gemm, name) for name in ("f32", "bf16", "attention_bf16")}
    share = 100 * WIDTH / median(ours) * TOKEN_FLOPS / (1e9 * rates["bf16"])
    return {
        "rows": {
            "1": target(against_f32, "≥ 3.5", met=against_f32 >= 3.5),
            "2": target(against_bf16, "≥ 1.3", met=against_bf16 >= 1.3),
            "3": target(share, "≥ 32 %", met=share >= 32),
            "4": target(
                {"top-1 agreement": agreement, "mean Σ p log p/q": kl},
                "≥ 0.985; ≤ 0.0005",
                met=agreement >= 0.985 and kl <= 0.0005,
            ),
        },
        "details": {
            "allocator": ALLOCATOR,
            "tokens a round": WIDTH,
            "rounds": len(ours),
            "tokens a second": {
                name: WIDTH / median(said[name])
                for name in ("naive_f32", "naive_bf16", OURS)
            },
            "compile s": ours[0]["compile_s"],
            "GEMM GF/s": rates,
            "GEMM bf16 / f32": rates["bf16"] / rates["f32"],
        },
    }


def ours() -> Round:
    """The pass as the stage runs it, its rows then compared with the f32 racer's."""
    model, ids_WT = trunk(torch.bfloat16, is_compiled=True), windows(16, WIDTH)
    before = _spent()
    model.hidden(ids_WT[:1])
    compile_s = _spent() - before - seconds(lambda: model.hidden(ids_WT[:1]))

    def play(index: int) -> Json:
        ids_1T = ids_WT[index : index + 1]
        found: list[tuple[Tensor, TopK]] = []
        took = seconds(lambda: found.append(_pass(ids_1T)))
        normed_RH, top = found[0]
        share = compile_s * WIDTH / PASS_TOKENS
        close = _closeness(normed_RH, model.shared.head_VH, top, index)
        return {"seconds": took + share, "compile_s": compile_s, **close}

    def _pass(ids_1T: Tensor) -> tuple[Tensor, TopK]:
        normed_RH = model.final_norm(model.hidden(ids_1T)).flatten(0, 1)
        return normed_RH, topk_rows(normed_RH, model.shared.head_VH, KEPT, BUDGET_BYTES)

    return play


def naive(dtype: torch.dtype) -> Round:
    """`transformers` with logits, softmax and topk; the f32 one keeps its answers."""
    model, ids_WT = peer(dtype), windows(16, WIDTH)

    @torch.no_grad()
    def _pass(ids_1T: Tensor) -> tuple[Tensor, Tensor]:
        logits_RV = model(ids_1T, use_cache=False).logits[0].float()
        p_RK, id_RK = logits_RV.softmax(-1).topk(KEPT)
        return id_RK, p_RK

    def play(index: int) -> Json:
        found: list[tuple[Tensor, Tensor]] = []
        took = seconds(lambda: found.append(_pass(ids_WT[index : index + 1])))
        if dtype == torch.float32:
            torch.save(found[0], FOLDER / f"f32-{index}.pt")
        return {"seconds": took}

    return play


def gemm() -> Round:
    """GF a second of one layer's widest product, and of its attention."""
    rows, inner, outer = GEMM
    flops = 2.0 * rows * inner * outer
    q = torch.randn(1, 9, WIDTH, 64).bfloat16()
    attention = partial(
        torch.nn.functional.scaled_dot_product_attention, q, q, q, is_causal=True
    )

    def rate(dtype: torch.dtype) -> float:
        x, w = torch.randn(rows, inner).to(dtype), torch.randn(outer, inner).to(dtype)
        out = torch.empty(rows, outer, dtype=dtype)
        took = [seconds(partial(torch.mm, x, w.T, out=out)) for _ in range(4)]
        return flops / statistics.median(took[1:]) / 1e9

    def play(index: int) -> Json:
        took = min(seconds(attention) for _ in range(3))
        return {
            "f32": rate(torch.float32),
            "bf16": rate(torch.bfloat16),
            "attention_bf16": 2.0 * 9 * WIDTH * WIDTH * 64 / took / 1e9,
        }

    return play


def _closeness(normed_RH: Tensor, head_VH: Tensor, top: TopK, index: int) -> Json:
    """Against f32: share of equal best tokens; Σ p log p/q over its 64 best."""
    path = FOLDER / f"f32-{index}.pt"
    if not path.exists():  # while warming up
        return {}
    id_RK, p_RK = torch.load(path)
    z_RK = exact_logits(normed_RH.float(), head_VH, id_RK)
    log_q_RK = z_RK - top.logsumexp_R[:, None]
    return {
        "agreement": float((top.id_RK[:, 0] == id_RK[:, 0]).float().mean()),
        "kl": float((p_RK * (p_RK.log() - log_q_RK)).sum(-1).mean()),
    }


def _spent() -> float:
    """Processor seconds of this process and the compilers it ran."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(
            resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
    )


RACERS: dict[str, Callable[[], Round]] = {
    OURS: ours,
    "naive_f32": partial(naive, torch.float32),
    "naive_bf16": partial(naive, torch.bfloat16),
    "gemm": gemm,
}

if __name__ == "__main__":
    main(measure, RACERS)
