"""Two processes that train one draft do what one does, up to the order of f32 sums."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from nets.ranks import Ranks
from nets.source import Windows
from nets.tally import own_windows
from tests.test_nets.rank_program import CASES, Found, read_state, train, write_state

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("rank_program.py")

# Of f32 sums in another order: some 2**-24 relative, through one layer and 6 steps of Adam,
# which moves an entry by lr times a ratio of moments that are off by as much. Measured:
# 2e-7 at most. A share counted twice, or a mean of means, is off by 1e-2.
NEAR = 1e-5


@pytest.fixture(scope="module")
def alone() -> Mapping[str, Found]:
    """The runs of one process; the first skips a step, or the comparison shows little."""
    torch.set_num_threads(1)
    found = {case: train(case) for case in CASES}
    assert found["unequal"].result.skipped > 0
    return found


@pytest.fixture(scope="module")
def two(alone: Mapping[str, Found], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which both ranks left what they found."""
    folder = tmp_path_factory.mktemp("ranks")
    write_state(alone["unequal"].states[2], folder / "alone")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, str(PROGRAM), str(rank), str(folder)],
                    stderr=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
            )
            for rank in range(2)
        ]
        for rank in ranks:
            stack.callback(rank.kill)
        for rank in ranks:
            _, said = rank.communicate(timeout=600)
            assert rank.returncode == 0, said
    return folder


def said(folder: Path) -> dict[str, Any]:  # JSON
    found: dict[str, Any] = json.loads((folder / "said.json").read_text())
    return found


def assert_near(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        off = (found[name] - tensor).abs().max().item()
        assert off < NEAR, f"{name} is off by {off}"


def assert_same_run(folder: Path, expected: Found) -> None:
    log, result = said(folder), expected.result
    assert log["skipped"] == result.skipped
    assert len(log["steps"]) == len(result.steps)
    for step, wanted in zip(log["steps"], result.steps, strict=True):
        for name in ("loss", "grad_norm", "lr"):
            assert step[name] == pytest.approx(getattr(wanted, name), rel=NEAR), wanted.step
        assert step["kl"] == pytest.approx(wanted.kl, rel=NEAR)
        assert step["kind"] == wanted.kind
    for record, at in zip(log["evaluations"], result.evaluations, strict=True):
        # Counts are whole numbers and no row is near a tie: what follows has no rounding.
        for name in ("step", "walk", "starts", "is_best"):
            assert record[name] == getattr(at, name), at.step
        assert record["hold_rates"] == list(at.hold_rates)
        assert record["kl"] == pytest.approx(at.kl, rel=NEAR)
        assert record["kind_kl"] == pytest.approx(at.kind_kl, rel=NEAR)
    assert_near(load_file(folder / "draft.safetensors"), expected.draft.tensors())


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_make_the_steps_of_one(
    alone: Mapping[str, Found], two: Path, case: str
) -> None:
    assert_same_run(two / "0" / case, alone[case])


@pytest.mark.parametrize("case", [*CASES, "resumed"])
def test_both_ranks_have_the_same_bits_and_the_first_alone_saves(
    two: Path, case: str
) -> None:
    first, second = two / "0" / case, two / "1" / case
    assert said(first)["saved"] > 0
    assert said(first) == said(second) | {"saved": said(first)["saved"]}
    assert said(second)["saved"] == 0
    whole = (first / "draft.safetensors").read_bytes()
    assert whole == (second / "draft.safetensors").read_bytes()


def test_two_ranks_go_on_from_a_checkpoint_of_one(
    alone: Mapping[str, Found], two: Path
) -> None:
    assert_same_run(two / "0" / "resumed", alone["unequal"])


def test_one_process_goes_on_from_a_checkpoint_of_two(
    alone: Mapping[str, Found], two: Path
) -> None:
    state = read_state(two / "0" / "unequal" / "state")
    assert 0 < len(state.facts.steps) < 6
    found, expected = train("unequal", resume=state), alone["unequal"]
    assert found.result.skipped == expected.result.skipped
    for step, wanted in zip(found.result.steps, expected.result.steps, strict=True):
        assert step.loss == pytest.approx(wanted.loss, rel=NEAR)
    assert_near(found.draft.tensors(), expected.draft.tensors())


def test_a_rank_that_would_train_something_else_says_so(two: Path) -> None:
    assert not (two / "0" / "unlike").exists()
    assert "rank 1 of 2 would train something else" in (two / "1" / "unlike").read_text()


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_shares_are_everything_once_and_held_out_batches_stay_whole(
    size: int, count: int
) -> None:
    items = list(range(count))
    shares = [Ranks(rank, size).share(count).of(items) for rank in range(size)]
    assert [item for share in shares for item in share] == items
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    windows = Windows(tuple(items), (0,) * count)
    measured = [own_windows(windows, 2, Ranks(rank, size)) for rank in range(size)]
    assert [item for own in measured for item in own.of(items)] == items
    assert all(own.start % 2 == 0 for own in measured)
