"""Row 5: what the head loss adds to a process's peak memory, at two vocabularies.

`python -m bench.loss_memory [--quick]`. Each loss runs once in a fresh process, whose peak
(VmHWM) is set back just before; noise stands for rows and head, only sizes matter.
"""

import json
import subprocess
import sys
from pathlib import Path

from bench.turns import HOME, Json, environment, main, target

MODULE, BUDGET_MIB, KEPT = "bench.loss_memory", 256, 64
SIZES = {49_152: (4096, 576), 151_936: (2048, 1024)}  # vocabulary: rows, width


def measure(*, quick: bool = False) -> Json:
    """MiB a loss adds to the peak: ours, and naive in bf16 as it is usually written."""
    kinds = ["ours"] if quick else ["ours", "naive"]
    grown = {kind: {vocab: _grown(kind, vocab) for vocab in SIZES} for kind in kinds}
    ours = list(grown["ours"].values())
    is_met = max(ours) <= BUDGET_MIB + 32 and max(ours) <= 1.1 * min(ours)
    value = {f"MiB at V {vocab:,}": mib for vocab, mib in grown["ours"].items()}
    return {
        "rows": {"5": target(value, "≤ 288 MiB, equal within 10 %", met=is_met)},
        "details": {
            "allocator": "glibc's default",
            "budget MiB": BUDGET_MIB,
            "MiB": {
                kind: {str(v): mib for v, mib in by.items()} for kind, by in grown.items()
            },
        },
    }


def grow(kind: str, vocab: int) -> float:
    """Runs the loss once in this process; MiB between memory before it and its peak."""
    import torch

    from bench.naive_loss import naive_tail_kl
    from nets.head import fused_loss

    torch.set_num_threads(1)
    rows, width = SIZES[vocab]
    normed_RH = torch.randn(rows, width).requires_grad_()
    head_VH = torch.empty(vocab, width, dtype=torch.bfloat16).normal_()
    id_RK = torch.randint(vocab, (rows, 1)) + torch.arange(KEPT) & (2**15 - 1)
    p_RK = torch.rand(rows, KEPT).softmax(-1) * 0.9
    torch.mm(normed_RH[:8].detach().bfloat16(), head_VH[:64].T)  # the libraries' own share
    Path("/proc/self/clear_refs").write_text("5")
    before = status_kib("VmRSS")
    if kind == "ours":
        loss = fused_loss("tail_kl", normed_RH, head_VH, id_RK, p_RK, BUDGET_MIB << 20)
    else:
        loss = naive_tail_kl(normed_RH.bfloat16() @ head_VH.T, id_RK, p_RK).sum()
    torch.autograd.backward(loss)
    return (status_kib("VmHWM") - before) / 1024


def _grown(kind: str, vocab: int) -> float:
    command = [sys.executable, "-m", MODULE, "--grow", kind, str(vocab)]
    said = subprocess.check_output(command, cwd=HOME, env=environment(), text=True)
    return float(json.loads(said))


def status_kib(name: str) -> int:
    """A line of /proc/self/status, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--grow"]:
        print(json.dumps(grow(sys.argv[2], int(sys.argv[3]))))  # noqa: T201
    else:
        main(measure)
