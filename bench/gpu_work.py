"""The pieces of a heal at a 14B trunk's shapes: seconds, peak memory, shares of limits.

A share of the GEMM rate or of the copy bandwidth that the same device reached in the same
run. Axes: B windows, T positions, H hidden, V vocabulary, R rows.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from bench.gpu_clock import Clock, forget_peak, peak_bytes, seconds_of
from bench.gpu_model import (
    KEPT,
    Sizes,
    random_batch,
    random_draft,
    random_ids,
    random_trunk,
)
from bench.turns import Json
from nets.candidates import candidates, exact_top
from nets.draft import Draft
from nets.evaluate import Compute
from nets.head import measure_rows, topk_rows
from nets.objective import chain_sums
from nets.optimizer import NamedOptimizer
from nets.source import Batch
from nets.trunk import Trunk

RATE = 2e-5
ADAM_BYTES = 7 * 4  # a weight: weight, gradient and two moments read, three written
SOFTMAX_BYTES = 2 * 4 + 4  # a logit: read and written as f32, read once more for its best


def roofline(sizes: Sizes, device: str) -> Json:
    """A bf16 product's flops, a copy's bytes on the device and to the host, a second."""
    side = sizes.gemm
    x, w = (torch.randn(side, side, device=device).bfloat16() for _ in range(2))
    out = torch.empty_like(x)
    gemm_s = seconds_of(lambda: torch.mm(x, w, out=out), device, 7)
    source = torch.zeros(sizes.copied_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy_s = seconds_of(lambda: target.copy_(source), device, 7)
    part = source[: sizes.copied_bytes // 16].clone()
    host_s = seconds_of(lambda: part.to("cpu", copy=True), device)
    return {
        "gemm flops": 2.0 * side**3 / gemm_s,
        "copy bytes": 2.0 * sizes.copied_bytes / copy_s,
        "to host bytes": len(part) / host_s,
    }


def trunk_pass(sizes: Sizes, device: str, limits: Json, clock: Clock) -> Json:
    """The trunk's rows, eager and compiled, and the head's top-k, by tokens of a call."""
    forget_peak(device)
    model = random_trunk(sizes.trunk, device)
    found: Json = {"rows": {}, "head": {}}
    for windows in sizes.calls:
        ids_BT = random_ids(sizes, windows, device)
        found["rows"][_tokens(ids_BT)] = _rows(model, ids_BT, sizes, device, limits)
    needs_s = sizes.compile_s
    if needs_s is not None and clock.allows("the compiled trunk", needs_s):
        compiled = Trunk(model.shared, model.geometry, model.layers, is_compiled=True)
        ids_BT = random_ids(sizes, sizes.calls[-1], device)
        one = _rows(compiled, ids_BT, sizes, device, limits)
        found["rows"][f"{_tokens(ids_BT)}, compiled"] = one
    rows_BTH = model.hidden(random_ids(sizes, sizes.calls[0], device))
    normed_RH = model.final_norm(rows_BTH).flatten(0, 1)
    for mib in sizes.budgets_mib:
        found["head"][f"{mib} MiB"] = _head(model, normed_RH, mib, device, limits)
    return {**found, "peak bytes": peak_bytes(device)}


def top_k(sizes: Sizes, device: str, limits: Json) -> Json:
    """The parts of the head's top-k over 512 rows of logits, beside torch's own `topk`."""
    size, rows = sizes.trunk, min(512, sizes.window)
    normed_RH = torch.randn(rows, size.hidden, device=device)
    head_VH = torch.randn(size.vocab, size.hidden, device=device).bfloat16() * 0.02
    low_RH, wide_RV = normed_RH.bfloat16(), torch.empty(rows, size.vocab, device=device)
    logits_RV = torch.mm(low_RH, head_VH.T)
    wide_RV.copy_(logits_RV)
    found = candidates(wide_RV, head_VH, KEPT)
    logsumexp_R = wide_RV.logsumexp(-1)
    out_RV = torch.empty_like(wide_RV)
    work: dict[str, Callable[[], object]] = {
        "product": lambda: torch.mm(low_RH, head_VH.T, out=logits_RV),
        "widening": lambda: wide_RV.copy_(logits_RV),
        "softmax": lambda: torch.softmax(wide_RV, -1, out=out_RV),
        "candidates": lambda: candidates(wide_RV, head_VH, KEPT),
        "exact order": lambda: exact_top(normed_RH, head_VH, found, logsumexp_R, KEPT),
        "torch.topk": lambda: wide_RV.topk(KEPT, dim=-1),
    }
    took = {name: seconds_of(one, device) for name, one in work.items()}
    copied = rows * size.vocab * SOFTMAX_BYTES / (took["softmax"] + took["candidates"])
    return {
        "rows": rows,
        "seconds": took,
        "share of copy": copied / limits["copy bytes"],
    }


def draft_step(sizes: Sizes, device: str, limits: Json) -> Json:
    """A training step by the head's budget, its Adam alone, and a measure of all rows."""
    forget_peak(device)
    draft, adam, batch = trained(sizes, device)
    size, rows = sizes.trunk, sizes.batch * sizes.window
    found: Json = {"rows": rows, "depth": sizes.depth, "steps": {}}
    found["weights"] = _count(draft)
    for mib in sizes.budgets_mib:
        compute = Compute(sizes.batch, "bf16", mib << 20)
        step = partial(train_step, draft, adam, batch, sizes.depth, compute)
        took = seconds_of(step, device)
        flops = rows * sizes.depth * size.step_flops()
        found["steps"][f"{mib} MiB"] = {
            "seconds": took,
            "flops": flops / took,
            "share of gemm": flops / took / limits["gemm flops"],
        }
    for parameter in adam.parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    took = seconds_of(lambda: adam.step(RATE), device)
    moved = found["weights"] * ADAM_BYTES / took
    found["adam"] = {"seconds": took, "share of copy": moved / limits["copy bytes"]}
    found["measure"] = _measure(draft, batch, sizes, device, limits)
    return {**found, "peak bytes": peak_bytes(device)}


def _rows(model: Trunk, ids_BT: Tensor, sizes: Sizes, device: str, limits: Json) -> Json:
    took = seconds_of(lambda: model.hidden(ids_BT), device)
    body = sizes.trunk.token_flops(sizes.window) - sizes.trunk.head_flops
    flops = ids_BT.numel() * body / took
    return {
        "seconds": took,
        "tokens a second": ids_BT.numel() / took,
        "flops": flops,
        "share of gemm": flops / limits["gemm flops"],
    }


def _head(model: Trunk, normed_RH: Tensor, mib: int, device: str, limits: Json) -> Json:
    head_VH = model.shared.head_VH
    took = seconds_of(lambda: topk_rows(normed_RH, head_VH, KEPT, mib << 20), device)
    flops = 2.0 * len(normed_RH) * head_VH.numel() / took
    return {
        "seconds": took,
        "tokens a second": len(normed_RH) / took,
        "share of gemm": flops / limits["gemm flops"],
    }


def trained(sizes: Sizes, device: str) -> tuple[Draft, NamedOptimizer, Batch]:
    """The draft beside embedding and head; of the trunk nothing else is there."""
    draft = random_draft(sizes.trunk, device)
    draft.trainable("all")
    return (
        draft,
        NamedOptimizer(dict(draft.named_parameters())),
        random_batch(sizes, device),
    )


def train_step(
    draft: Draft, adam: NamedOptimizer, batch: Batch, depth: int, compute: Compute
) -> None:
    """One step as `nets.training.fit` does it."""
    torch.autograd.backward(chain_sums(draft, batch, depth, compute).means().mean())
    adam.clip(1.0)
    adam.step(RATE)
    adam.drop_gradients()


def _measure(draft: Draft, batch: Batch, sizes: Sizes, device: str, limits: Json) -> Json:
    """The head's share of a measure, every row of one chain step alive."""
    normed_RH = batch.hidden_BTH.flatten(0, 1)
    id_RK, p_RK = batch.topk_id_BTK.flatten(0, 1), batch.topk_p_BTK.flatten(0, 1)
    head_VH, budget = draft.shared.head_VH, sizes.budgets_mib[-1] << 20
    took = seconds_of(lambda: measure_rows(normed_RH, head_VH, id_RK, p_RK, budget), device)
    flops = 2.0 * len(normed_RH) * head_VH.numel() / took
    return {"seconds": took, "share of gemm": flops / limits["gemm flops"]}


def _count(draft: Draft) -> int:
    return sum(parameter.numel() for parameter in draft.parameters())


def _tokens(ids_BT: Tensor) -> str:
    return f"{ids_BT.numel():,} tokens"
