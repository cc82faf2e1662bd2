"""The exact layout: what each row reads, by hand; and equal to rounds run one by one."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nets.chain import unroll_apart, unroll_exact
from nets.draft import KeyValues, build_draft
from nets.trunk import build_shared
from tests.builders import EVERY_FAMILY, TinyModel
from tests.hf_peer import doubles, plain_of
from tests.oracles.rounds import all_rounds

torch.set_num_threads(1)


class EchoDraft:
    """Fuse gives 100·carry + token, block passes it on: the output spells what was read."""

    def __init__(self) -> None:
        self.positions: list[list[int]] = []
        self.masks: list[Tensor | None] = []

    def trunk_rows(self, hidden_BTH: Tensor) -> Tensor:
        return hidden_BTH

    def chain_rows(self, o_BTH: Tensor) -> Tensor:
        return o_BTH

    def fuse(self, token_BT: Tensor, hidden_BTH: Tensor) -> Tensor:
        return 100 * hidden_BTH + token_BT[:, :, None]

    def block(
        self,
        x_BTH: Tensor,
        position_BT: Tensor,
        mask: Tensor | None = None,
        cache: KeyValues | None = None,
    ) -> Tensor:
        self.positions.append(position_BT[0].tolist())
        self.masks.append(mask)
        return x_BTH


def windows(*ids: list[int]) -> Tensor:
    return torch.tensor(ids)


def rows(*values: list[float]) -> Tensor:
    return torch.tensor(values)[:, :, None]


def live(output_BTH: Tensor, alive_BT: Tensor) -> list[float]:
    flat: list[float] = output_BTH[:, :, 0][alive_BT].tolist()
    return flat


def test_each_step_reads_the_next_token_and_its_own_output() -> None:
    ids_BT, length_B = windows([7, 3, 5, 9]), torch.tensor([4])
    draft = EchoDraft()
    steps = list(unroll_exact(draft, ids_BT, length_B, rows([1.0, 2.0, 4.0, 8.0]), 3))
    read = [live(step.output_BTH, step.alive_BT) for step in steps]
    assert read == [[103, 205, 409], [10305, 20509], [1030509]]
    assert [step.step for step in steps] == [1, 2, 3]
    assert draft.positions == [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]


def test_rows_are_alive_up_to_each_window_s_own_length() -> None:
    ids_BT = windows([7, 3, 5, 9], [7, 3, 0, 0])
    chain = unroll_exact(
        EchoDraft(), ids_BT, torch.tensor([4, 2]), rows([1.0] * 4, [1.0] * 4), 2
    )
    alive = [step.alive_BT.tolist() for step in chain]
    assert alive[0] == [[True, True, True, False], [True, False, False, False]]
    assert alive[1] == [[True, True, False, False], [False] * 4]


def test_dead_rows_enter_the_block_as_zero() -> None:
    chain = unroll_exact(
        EchoDraft(), windows([7, 3, 5]), torch.tensor([2]), rows([1.0] * 3), 1
    )
    assert next(chain).output_BTH[0, :, 0].tolist() == [103, 0, 0]


def test_a_row_sees_the_trunk_s_rows_before_it_and_its_own_chain() -> None:
    draft = EchoDraft()
    list(unroll_exact(draft, windows([1, 2, 3]), torch.tensor([3]), rows([0.0] * 3), 3))
    assert draft.masks[0] is None
    assert draft.masks[2] is not None
    assert draft.masks[2].int().tolist() == [
        [
            [
                [1, 0, 0, 1, 0, 0, 1, 0, 0],
                [1, 1, 0, 0, 1, 0, 0, 1, 0],
                [1, 1, 1, 0, 0, 1, 0, 0, 1],
            ]
        ]
    ]


def test_no_gradient_goes_through_the_chain_unasked() -> None:
    hidden_BTH = rows([1.0, 1.0, 1.0]).requires_grad_()
    ids_BT, length_B = windows([1, 2, 3]), torch.tensor([3])
    given = (EchoDraft(), ids_BT, length_B, hidden_BTH, 2)
    apart = unroll_apart(*given, torch.zeros_like(ids_BT))
    for steps in (list(unroll_exact(*given)), list(apart)):
        assert [step.output_BTH.requires_grad for step in steps] == [True, False]


def test_steps_past_a_window_s_width_are_dead() -> None:
    given = (EchoDraft(), windows([7, 3]), torch.tensor([2]), rows([1.0, 2.0]))
    steps = list(unroll_exact(*given, 3))
    read = [live(step.output_BTH, step.alive_BT) for step in steps]
    assert read == [[103], [], []]
    assert steps[2].output_BTH[0, :, 0].tolist() == [0, 0]


@pytest.mark.parametrize("through", [False, True])
def test_gradient_goes_through_the_chain_only_when_asked(*, through: bool) -> None:
    hidden_BTH = rows([1.0, 1.0, 1.0]).requires_grad_()
    steps = list(
        unroll_exact(
            EchoDraft(),
            windows([1, 2, 3]),
            torch.tensor([3]),
            hidden_BTH,
            2,
            through_chain=through,
        )
    )
    assert steps[1].output_BTH.requires_grad is through
    if through:
        torch.autograd.backward(steps[1].output_BTH.sum())
        assert hidden_BTH.grad is not None
        assert hidden_BTH.grad[0, :, 0].tolist() == [10_000, 0, 0]


@pytest.mark.parametrize("make", EVERY_FAMILY)
def test_every_start_equals_a_decode_round_of_its_own(
    make: Callable[[], TinyModel],
) -> None:
    model, depth, width = make(), 4, 11
    shared = build_shared(
        model.arch, model.shapes, model.read, device="cpu", dtype=torch.float32
    )
    draft = build_draft(model.arch, model.shapes, model.read, shared)
    generator = torch.Generator().manual_seed(5)
    ids_BT = torch.randint(model.arch.vocab_size, (2, width), generator=generator)
    hidden_BTH = torch.randn(2, width, model.arch.hidden_size, generator=generator)
    length_B = torch.tensor([width, 7])
    tensors, plain = doubles(model), plain_of(model)
    with torch.no_grad():
        steps = list(unroll_exact(draft, ids_BT, length_B, hidden_BTH, depth))
    for b, length in enumerate(length_B.tolist()):
        ids, hidden = ids_BT[b, :length].tolist(), hidden_BTH[b, :length].double().numpy()
        rounds = all_rounds(ids, hidden, depth, tensors, plain)
        alive = {(p, s.step) for s in steps for p in range(width) if s.alive_BT[b, p]}
        assert alive == set(rounds)
        for (p, step), expected in rounds.items():
            found = steps[step - 1].output_BTH[b, p].double().numpy()
            # f32 against f64 over a handful of products of 32 terms of size about 1.
            assert abs(found - expected).max() < 1e-5, f"window {b}, start {p}, step {step}"
