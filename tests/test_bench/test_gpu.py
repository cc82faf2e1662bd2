"""The card's script end to end on the processor, and its numbers against other counts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from bench.gpu import main
from bench.gpu_clock import Clock
from bench.gpu_model import TINY, random_draft, random_ids, random_trunk
from bench.gpu_page import page
from bench.gpu_parity import Seen, distances, too_far
from conf.machine import cuda_devices
from nets.candidates import TopK, exact_logits
from nets.head import topk_rows

TRIED = ["--device", "cpu", "--tiny"]


def test_the_whole_script_on_the_processor(tmp_path: Path) -> None:
    assert main([*TRIED, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["parity"]["failed"] == []
    assert found["parity"]["families"]["llama"]["rows"] == 0.0  # the same device twice
    assert list(found["trunk pass"]["rows"]) == ["32 tokens", "64 tokens"]
    assert list(found["draft step"]["steps"]) == ["1 MiB", "2 MiB"]
    assert found["top-k"]["rows"] == 32
    assert found["notes"] == []
    text = (tmp_path / "gpu.md").read_text()
    assert "nothing of the plan was measured" in text
    assert "| llama | 0.0e+00 |" in text


def test_what_does_not_fit_into_the_budget_is_said(tmp_path: Path) -> None:
    assert main([*TRIED, "--budget-s", "0", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert "draft step" not in found
    assert len(found["notes"]) == 4
    assert "* draft step: left out" in (tmp_path / "gpu.md").read_text()


@pytest.mark.skipif(cuda_devices() > 0, reason="there is a card here")
def test_without_a_card_it_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path)]) == 2
    assert "--device cpu --tiny" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_clock_without_time_notes_what_it_refuses() -> None:
    clock = Clock(10.0)
    assert clock.allows("one", 5.0)
    assert not clock.allows("two", 50.0)
    (note,) = clock.notes
    assert note.startswith("two: left out, it takes about 50 s and 10 s of 10 s were left")


def test_a_device_that_computes_something_else_is_too_far() -> None:
    ids_RK = torch.tensor([[3, 1], [2, 0]], dtype=torch.int32)
    top = TopK(ids_RK, torch.full((2, 2), 0.4), torch.tensor([1.0, 2.0]))
    right = Seen(torch.ones(1, 2, 3), top, torch.tensor([2.0, 4.0]), torch.ones(5))
    assert too_far(distances(right, right)) == []
    other = replace(top, id_RK=ids_RK.flip(1), logsumexp_R=top.logsumexp_R + 0.5)
    wrong = replace(right, hidden_BTH=right.hidden_BTH * 1.01, top=other)
    found = distances(wrong, right)
    assert found["rows"] == pytest.approx(0.01, rel=1e-4)
    assert found["best token"] == 0.0
    assert found["log-sum-exp"] == 0.5
    assert too_far(found) == ["rows", "log-sum-exp"]
    assert too_far({**found, "gradient": float("nan")})[-1] == "gradient"


def test_weights_and_flops_are_those_that_torch_counts() -> None:
    size = TINY.trunk
    model = random_trunk(size, "cpu")
    matrices = [p for p in model.layers.parameters() if p.dim() == 2]
    held = [*matrices, model.shared.embed_VH, model.shared.head_VH]
    assert sum(tensor.numel() for tensor in held) == size.weights
    draft = [p for p in random_draft(size, "cpu").parameters() if p.dim() == 2]
    assert sum(tensor.numel() for tensor in draft) == size.draft_weights
    ids_BT = random_ids(TINY, 2, "cpu")
    with FlopCounterMode(display=False) as counter:
        normed_RH = model.final_norm(model.hidden(ids_BT)).flatten(0, 1)
        topk_rows(normed_RH, model.shared.head_VH, 1, 1 << 20)
    # torch knows nothing of the processor's attention, and counts the 17 exact products.
    products = size.token_flops(TINY.window) - size.attention_flops(TINY.window)
    exact = 2.0 * 17 * size.hidden
    assert counter.get_total_flops() == (products + exact) * ids_BT.numel()
    pairs = sum(range(1, TINY.window + 1))  # of a row and one it sees, each twice 2 · D
    attention = pairs * 4 * size.head_dim * size.heads * size.layers / TINY.window
    assert size.attention_flops(TINY.window) == attention


@pytest.mark.parametrize(("device", "products"), [("cpu", 160), ("meta", 1)])
def test_on_a_card_the_exact_order_of_a_slice_is_one_product(
    device: str, products: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, candidates, width = 160, 80, 5120
    id_RM = torch.zeros(rows, candidates, dtype=torch.int64, device=device)
    normed_RH = torch.zeros(rows, width, device=device)
    head_VH = torch.zeros(100, width, dtype=torch.bfloat16, device=device)
    calls = []

    def counted(*given: Tensor, out: Tensor) -> None:
        calls.append(given)

    monkeypatch.setattr(torch, "bmm", counted)
    exact_logits(normed_RH, head_VH, id_RM)
    assert len(calls) == products


def test_the_table_tells_a_pass_by_its_rate() -> None:
    rate = {"tokens a second": 39_321.6, "share of gemm": 0.505}
    found = {
        "about": {
            "device": "card",
            "torch": "2",
            "date": "today",
            "tiny": False,
            "seconds": 1,
        },
        "roofline": {"gemm flops": 7e14, "copy bytes": 4e12, "to host bytes": 2e10},
        "trunk pass": {"rows": {"2,048 tokens": rate}, "head": {}, "peak bytes": 31e9},
        "notes": [],
    }
    text = page(found)
    line = (
        "| trunk, 393,216 tokens, calls of 2,048 tokens | 10.0 s | 20–25 s | 50% of GEMM |"
    )
    assert line in text
    assert "| peak memory of the pass | 31.0 GB |  |  |" in text
    assert "| bf16 GEMM | 700 TF/s | 989 TF/s |  |" in text
