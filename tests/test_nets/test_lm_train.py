"""The small trunk learns what can be learnt; a rerun is bit-equal."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from nets.errors import ModelError, TrainingError
from nets.lm_train import LmSettings, LmStep, lr_at, train_lm
from nets.trunk import build_trunk
from tests.builders import TinySpec, model_of, tiny_llama, tiny_qwen3

torch.set_num_threads(1)

ARCH = tiny_qwen3(TinySpec(vocab=7)).arch
CYCLE = torch.tensor([3, 1, 4, 0, 5, 2, 6])


def cycles(seed: int = 0) -> Iterator[Tensor]:
    """Windows of one cycle through the vocabulary, each from another place of it."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        start_B1 = torch.randint(7, (4, 1), generator=generator)
        yield CYCLE[(start_B1 + torch.arange(16)) % 7]


def trained(
    steps: int, settings: LmSettings | None = None
) -> tuple[dict[str, Tensor], list[LmStep]]:
    log: list[LmStep] = []
    settings = settings or LmSettings(steps=steps, lr=1e-2, seed=0)
    return train_lm(ARCH, cycles(), settings, log.append), log


def test_a_cycle_is_learnt_and_the_tensors_predict_it() -> None:
    tensors, log = trained(60)
    assert log[0].loss == pytest.approx(math.log(7), abs=0.15)  # knows nothing yet
    assert log[-1].loss < 0.02
    trunk = build_trunk(*model_of(ARCH, tensors), device="cpu", dtype=torch.float32)
    ids_BT = CYCLE.repeat(2)[None]
    best = trunk.logits(trunk.hidden(ids_BT)[0]).argmax(dim=-1)
    assert best[:-1].tolist() == ids_BT[0, 1:].tolist()


def test_the_first_loss_is_that_of_the_first_weights() -> None:
    tensors, log = trained(1, LmSettings(steps=1, lr=1e-30, seed=4))  # a step of nothing
    trunk = build_trunk(*model_of(ARCH, tensors), device="cpu", dtype=torch.float32)
    ids_BT = next(cycles())
    logits = torch.stack([trunk.logits(rows) for rows in trunk.hidden(ids_BT)])
    total = 0.0
    for b in range(4):
        for t in range(15):
            row = [math.exp(x) for x in logits[b, t].tolist()]
            total -= math.log(row[int(ids_BT[b, t + 1])] / sum(row))
    assert log[0].loss == pytest.approx(total / 60, abs=1e-5)


def test_a_rerun_is_bit_equal_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(11)
    expected = torch.rand(1)
    torch.manual_seed(11)
    first, again = trained(4)[0], trained(4)[0]
    assert torch.equal(torch.rand(1), expected)
    for name, tensor in first.items():
        assert torch.equal(again[name], tensor), name


def test_the_rate_climbs_for_a_tenth_then_falls_to_a_tenth() -> None:
    settings = LmSettings(steps=20, lr=1.0, seed=0)
    assert lr_at(1, settings) == 0.5
    assert lr_at(2, settings) == 1.0
    assert lr_at(11, settings) == pytest.approx(0.55)  # halfway down the cosine
    assert lr_at(20, settings) == pytest.approx(0.1)


def test_a_loss_that_is_not_finite_stops_with_its_step() -> None:
    with pytest.raises(TrainingError, match=r"at step [0-9]+; use a lower learning rate"):
        trained(30, LmSettings(steps=30, lr=1e30, seed=0))


def test_a_head_of_its_own_is_refused() -> None:
    arch = tiny_llama().arch
    with pytest.raises(ModelError, match="tie_word_embeddings is false"):
        train_lm(arch, cycles(), LmSettings(steps=1, lr=1e-3, seed=0), lambda _: None)
