"""What a card did, as a table beside the plan on paper (docs/scaling.md, GPU)."""

from collections.abc import Iterator

from bench.turns import Json

PASS_TOKENS = 393_216  # of the plan's pass, two sets of which the reference reads
EVAL_WINDOWS = 20
PLAN = {
    "GEMM": "989 TF/s",
    "copy": "4.8 TB/s",
    "pass": "20–25 s",
    "head": "1–2 s over the product's 2 s",
    "step": "0.18–0.25 s",
    "adam": "3 ms",
    "measure": "0.8 s with the block",
    "memory": "below 50 GB",
}
TINY = ", tiny shapes: the script was tried, nothing of the plan was measured"
Row = tuple[str, str, str, str]


def page(found: Json) -> str:
    """The whole page: what it ran on, the table, parity, what was left out."""
    about = found["about"]
    lines = [
        "# A card's numbers",
        "",
        f"`make bench-gpu` on {about['device']}: torch {about['torch']}, {about['date']}, "
        f"{about['seconds']:.0f} s. Random weights{TINY if about['tiny'] else ''}.",
        "",
        "| what | measured | plan for an H200 | of what this device reached |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows(found)),
        "",
        *_parity(found.get("parity")),
        *(f"* {note}" for note in found["notes"]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def rows(found: Json) -> Iterator[Row]:
    """The table's lines, of the sections that ran."""
    limits = found["roofline"]
    gemm, copy = limits["gemm flops"] / 1e12, limits["copy bytes"] / 1e12
    yield "bf16 GEMM", f"{gemm:,.4g} TF/s", PLAN["GEMM"], ""
    yield "copy on the device", f"{copy:,.3g} TB/s", PLAN["copy"], ""
    yield "copy to the host", f"{limits['to host bytes'] / 1e9:,.3g} GB/s", "", ""
    if "trunk pass" in found:
        yield from _pass_rows(found["trunk pass"])
    if "top-k" in found:
        yield from _topk_rows(found["top-k"])
    if "draft step" in found:
        yield from _step_rows(found["draft step"])


def _pass_rows(one: Json) -> Iterator[Row]:
    for call, said in one["rows"].items():
        took = f"{PASS_TOKENS / said['tokens a second']:,.1f} s"
        what = f"trunk, {PASS_TOKENS:,} tokens, calls of {call}"
        yield what, took, PLAN["pass"], _gemm(said)
    for budget, said in one["head"].items():
        took = f"{PASS_TOKENS / said['tokens a second']:,.1f} s"
        what = f"head and top-k of these, slices of {budget}"
        yield what, took, PLAN["head"], _gemm(said)
    yield "peak memory of the pass", _gigabytes(one["peak bytes"]), "", ""


def _topk_rows(one: Json) -> Iterator[Row]:
    parts = ", ".join(f"{name} {1e3 * s:,.2f}" for name, s in one["seconds"].items())
    share = f"softmax and candidates: {one['share of copy']:.0%} of copy"
    yield f"top-k of {one['rows']} rows, ms", parts, "", share


def _step_rows(one: Json) -> Iterator[Row]:
    what = f"draft step, {one['rows']:,} rows × {one['depth']}"
    for budget, said in one["steps"].items():
        took = f"{said['seconds']:,.3f} s"
        yield f"{what}, slices of {budget}", took, PLAN["step"], _gemm(said)
    adam, measured = one["adam"], one["measure"]
    copy = f"{adam['share of copy']:.0%} of copy"
    millions = one["weights"] / 1e6
    yield f"Adam, {millions:,.0f} M", f"{1e3 * adam['seconds']:,.2f} ms", PLAN["adam"], copy
    windows = EVAL_WINDOWS * 2048 * one["depth"] / one["rows"]
    took = f"{windows * measured['seconds']:,.2f} s"
    what = f"head of a measure of {EVAL_WINDOWS} windows"
    yield what, took, PLAN["measure"], _gemm(measured)
    yield "peak memory of training", _gigabytes(one["peak bytes"]), PLAN["memory"], ""


def _parity(one: Json | None) -> Iterator[str]:
    if one is None:
        return
    limits = ", ".join(f"{name} {most:g}" for name, most in one["limits"].items())
    yield f"Against the processor, f32, tiny models of each family; at most {limits}:"
    yield ""
    yield "| family | rows | log-sum-exp | loss | gradient | best token | in bf16 |"
    yield "|---|---|---|---|---|---|---|"
    for family, said in one["families"].items():
        if "error" in said:
            yield f"| {family} | **failed**: {said['error']} | | | | | |"
            continue
        numbers = [f"{said[name]:.1e}" for name in one["limits"]]
        best = f"{said['best token']:.1%}", f"{said['in bf16']['best token']:.1%}"
        mark = " **too far**" if family in one["failed"] else ""
        yield f"| {' | '.join((family + mark, *numbers, *best))} |"
    yield ""


def _gemm(said: Json) -> str:
    return f"{said['share of gemm']:.0%} of GEMM"


def _gigabytes(size_bytes: int | None) -> str:
    return "–" if size_bytes is None else f"{size_bytes / 1e9:,.1f} GB"
