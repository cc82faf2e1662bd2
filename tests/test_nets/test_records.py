"""Records of a window apart: by hand, bit for bit under a change of another, and alone."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from nets.chain import unroll_apart, unroll_exact
from nets.draft import build_draft
from nets.hold import HoldArrays, coverage, on_path
from nets.records import pieces_of, positions_in, seen_in
from nets.source import Batch
from nets.trunk import build_trunk
from tests.builders import (
    EVERY_FAMILY,
    VOCAB,
    TinyModel,
    TinySpec,
    tiny_llama,
    tiny_qwen3,
)
from tests.oracles.rounds import all_rounds
from tests.oracles.trunk import Plain

torch.set_num_threads(1)

DEPTH = 3
# Two windows of 24 rows: records of 9, 1, 14 rows and of 11, 13; in the second the last
# four rows are padding.
LENGTHS = [[9, 1, 14], [11, 13]]
RECORD_BT = torch.tensor(
    [[i for i, n in enumerate(window) for _ in range(n)] for window in LENGTHS]
)
LENGTH_B = torch.tensor([24, 20])
CHANGED = (0, slice(0, 9)), (0, slice(10, 24)), (1, slice(0, 11))
Build = Callable[[TinySpec], TinyModel]


def some_ids(seed: int) -> Tensor:
    return torch.randint(VOCAB, (2, 24), generator=torch.Generator().manual_seed(seed))


def test_a_row_s_place_and_what_it_sees() -> None:
    record_BT = torch.tensor([[0, 0, 1, 1, 1]])
    assert positions_in(record_BT).tolist() == [[0, 1, 0, 1, 2]]
    assert seen_in(record_BT).int().tolist() == [
        [
            [1, 0, 0, 0, 0],
            [1, 1, 0, 0, 0],
            [0, 0, 1, 0, 0],
            [0, 0, 1, 1, 0],
            [0, 0, 1, 1, 1],
        ]
    ]
    assert pieces_of(record_BT) == [(0, slice(0, 2)), (0, slice(2, 5))]


def test_positions_start_anew_in_each_record() -> None:
    """Rotary attention sees differences only, so no row's value would tell."""
    trunk = build_trunk(*tiny_llama(TinySpec()), device="cpu", dtype=torch.float32)
    x_BTH = trunk.shared.embedded(some_ids(1))
    around = trunk.shared.surroundings(x_BTH, RECORD_BT)
    whole = trunk.shared.surroundings(x_BTH)
    for window, rows in pieces_of(RECORD_BT):
        width = rows.stop - rows.start
        assert torch.equal(around.cos_BTD[window, rows], whole.cos_BTD[0, :width])
        assert torch.equal(around.sin_BTD[window, rows], whole.sin_BTD[0, :width])
    draft = build_draft(*tiny_llama(TinySpec()), trunk.shared)
    asked: list[Tensor] = []
    draft.shared.rotary.register_forward_pre_hook(lambda _, given: asked.append(given[1]))
    hidden_BTH = torch.zeros(2, 24, x_BTH.shape[2])
    with torch.no_grad():
        chain = unroll_exact(
            draft, some_ids(1), LENGTH_B, hidden_BTH, 2, record_BT=RECORD_BT
        )
        list(chain)
    assert asked[0].tolist() == positions_in(RECORD_BT).tolist()
    assert asked[1].tolist() == (positions_in(RECORD_BT) + 1).tolist()


def rows_of(model: TinyModel, ids_BT: Tensor) -> dict[str, Tensor]:
    """The trunk's rows and each chain step's, live ones only, by name."""
    trunk = build_trunk(*model, device="cpu", dtype=torch.float32)
    draft = build_draft(*model, trunk.shared)
    hidden_BTH = trunk.hidden(ids_BT, RECORD_BT)
    found = {"trunk": hidden_BTH}
    none = torch.zeros(2, 24, 1)
    batch = Batch(ids_BT, LENGTH_B, hidden_BTH, none.long(), none, RECORD_BT)
    with torch.no_grad():
        for step in batch.chains(draft, DEPTH):
            live_BTH = step.output_BTH.masked_fill(~step.alive_BT[:, :, None], 0)
            found[f"step {step.step}"] = live_BTH
    return found


@pytest.mark.parametrize("tiny", EVERY_FAMILY)
def test_b2_another_record_s_text_changes_no_bit(tiny: Build) -> None:
    model, ids_BT = tiny(TinySpec()), some_ids(1)
    before = rows_of(model, ids_BT)
    for window, place in CHANGED:
        other_BT = ids_BT.clone()
        other_BT[window, place] = some_ids(2)[window, place]
        for name, rows_BTH in rows_of(model, other_BT).items():
            same_BT = (rows_BTH == before[name]).all(-1)
            own_BT = torch.zeros_like(same_BT)
            own_BT[window, place] = True
            assert same_BT[~own_BT].all(), name
            assert not same_BT[window, place].all(), name


@pytest.mark.parametrize("tiny", EVERY_FAMILY)
def test_each_record_has_the_trunk_s_rows_it_has_alone(tiny: Build) -> None:
    model, ids_BT = tiny(TinySpec()), some_ids(1)
    trunk = build_trunk(*model, device="cpu", dtype=torch.float32)
    found_BTH = trunk.hidden(ids_BT, RECORD_BT)
    for window, rows in pieces_of(RECORD_BT):
        alone_TH = trunk.hidden(ids_BT[window : window + 1, rows])[0]
        # The same sums of f32 in another order, two layers deep.
        torch.testing.assert_close(found_BTH[window, rows], alone_TH, rtol=0, atol=1e-5)


def test_chains_record_by_record_are_those_with_a_mask() -> None:
    model, ids_BT = tiny_llama(TinySpec()), some_ids(1)
    trunk = build_trunk(*model, device="cpu", dtype=torch.float32)
    draft = build_draft(*model, trunk.shared)
    given = (draft, ids_BT, LENGTH_B, trunk.hidden(ids_BT, RECORD_BT), 12)
    with torch.no_grad():
        masked = unroll_exact(*given, record_BT=RECORD_BT)
        for one, wanted in zip(unroll_apart(*given, RECORD_BT), masked, strict=True):
            assert one.step == wanted.step
            assert torch.equal(one.alive_BT, wanted.alive_BT)
            live = wanted.alive_BT
            # Deeper than any record is long, each step one more layer of f32 sums.
            torch.testing.assert_close(
                one.output_BTH[live], wanted.output_BTH[live], rtol=0, atol=1e-4
            )


@pytest.mark.parametrize(("tiny", "theta"), [(tiny_llama, 1e4), (tiny_qwen3, 1e6)])
def test_chains_are_the_rounds_of_each_record_by_itself(tiny: Build, theta: float) -> None:
    model, ids_BT = tiny(TinySpec()), some_ids(1)
    trunk = build_trunk(*model, device="cpu", dtype=torch.float32)
    draft = build_draft(*model, trunk.shared)
    hidden_BTH = trunk.hidden(ids_BT, RECORD_BT)
    with torch.no_grad():
        steps = list(
            unroll_exact(draft, ids_BT, LENGTH_B, hidden_BTH, DEPTH, record_BT=RECORD_BT)
        )
    tensors = {name: t.double().numpy() for name, t in model.tensors.items()}
    live = 0
    for window, rows in pieces_of(RECORD_BT):
        stop = min(rows.stop, int(LENGTH_B[window]))
        own = slice(rows.start, stop)
        rounds = all_rounds(
            ids_BT[window, own].tolist(),
            hidden_BTH[window, own].double().numpy(),
            DEPTH,
            tensors,
            Plain(layers=2, head_dim=8, eps=1e-6, theta=theta),
        )
        for (start, step), wanted_H in rounds.items():
            found = steps[step - 1]
            assert found.alive_BT[window, rows.start + start]
            np.testing.assert_allclose(
                found.output_BTH[window, rows.start + start], wanted_H, rtol=0, atol=1e-5
            )
        live += len(rounds)
    assert live == sum(int(step.alive_BT.sum()) for step in steps)


def test_a_row_counts_only_up_to_its_record_s_end() -> None:
    """All tokens are the trunk's own: only borders and lengths keep a row from counting."""
    ids_WT = np.array([[1, 2, 3, 4, 5]])
    top1_WT = np.array([[2, 3, 4, 5, 6]])
    record_WT = np.array([[0, 0, 0, 1, 1]])
    found = on_path(ids_WT, top1_WT, np.array([5]), 3, record_WT)
    assert found[0].astype(int).tolist() == [
        [1, 1, 0],  # row 0 predicts rows 1 and 2; row 3 is another record's
        [1, 0, 0],
        [0, 0, 0],
        [1, 0, 0],
        [0, 0, 0],
    ]


def test_coverage_is_of_rows_that_have_a_next_in_their_record() -> None:
    counted = np.zeros((1, 5, 1), bool)
    counted[0, [0, 1, 3], 0] = True
    arrays = HoldArrays(
        counted, counted, np.array([5]), np.zeros(1, np.int64), np.array([2])
    )
    assert coverage(arrays) == 1.0
    assert coverage(arrays.of_set(0)) == 1.0


def test_a_batch_takes_its_records_along() -> None:
    rows = torch.zeros(2, 24, 4)
    batch = Batch(some_ids(1), LENGTH_B, rows, some_ids(2)[:, :, None], rows, RECORD_BT)
    moved = batch.to(torch.device("cpu"))
    assert moved.record_BT is not None
    assert torch.equal(moved.record_BT, RECORD_BT)
