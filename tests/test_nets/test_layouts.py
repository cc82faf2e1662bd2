"""`rows` and `stride N`: by hand, and equal to plain loops with a cache of their own."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from nets.chain import ChainBlock, ChainStep, unroll_exact
from nets.draft import Draft, build_draft
from nets.layouts import Laid, Stride, spliced_rows, stride_at, unroll_rows
from nets.records import pieces_of
from nets.trunk import build_shared
from tests.builders import TinyModel, tiny_llama, tiny_qwen3
from tests.hf_peer import doubles, plain_of
from tests.oracles.layouts import Chains, rows_chains, starts_of, stride_sequence
from tests.oracles.trunk import Rows
from tests.test_nets.test_chain import EchoDraft, live, rows, windows

torch.set_num_threads(1)

DEPTH, WIDTH, EVERY = 4, 13, 5
LENGTH_B = torch.tensor([13, 9, 3])
# The last record of the first window is shorter than a chain, the padding is the last's.
RECORD_BT = torch.tensor(
    [
        [0] * 5 + [1] * 6 + [2] * 2,
        [0] * 3 + [1] * 10,
        [0] * 13,
    ]
)
BUILDS = [tiny_llama, tiny_qwen3]
# f32 against f64 over a handful of products of 32 terms of size about 1, a layer a step.
CLOSE = 2e-5


def unroll_stride(
    draft: ChainBlock, laid: Laid, hidden_BTH: Tensor, depth: int, stride: Stride
) -> Iterator[ChainStep]:
    """Steps 1…depth of the chains from a stride's starts, one forward of spliced rows.

    Step j's row for start p is at position p+j-1 and sees everything before it, rows of
    earlier chains included.
    """
    carried_BTH = spliced_rows(draft, laid, hidden_BTH, depth, stride)
    output_BTH = laid.block(draft, laid.inputs(draft, carried_BTH, 1))
    starts_BT = stride.starts(laid)
    for step in range(1, depth + 1):
        # Rolled round are rows whose chain would leave the window: never alive.
        at_start_BTH = output_BTH.roll(1 - step, dims=1)
        yield ChainStep(step, at_start_BTH, starts_BT & laid.alive(step))


def test_rows_reads_each_step_at_its_start() -> None:
    draft = EchoDraft()
    laid = Laid(windows([7, 3, 5, 9]), torch.tensor([4]))
    steps = list(unroll_rows(draft, laid, rows([1.0, 2.0, 4.0, 8.0]), 3))
    read = [live(step.output_BTH, step.alive_BT) for step in steps]
    assert read == [[103, 205, 409], [10305, 20509], [1030509]]
    assert draft.positions == [[0, 1, 2, 3]] * 3
    assert draft.masks == [None] * 3


def test_inputs_are_the_tokens_to_come_and_what_is_carried_in_dead_rows_0() -> None:
    laid = Laid(windows([7, 3, 5, 9, 2]), torch.tensor([4]))
    x_BTH = laid.inputs(EchoDraft(), rows([1.0, 2.0, 4.0, 8.0, 16.0]), 2)
    whole_BTH = EchoDraft().fuse(windows([5, 9, 2, 7, 3]), rows([1.0, 2.0, 4.0, 8.0, 16.0]))
    assert torch.equal(x_BTH[:, :2], whole_BTH[:, :2])
    assert whole_BTH[:, 2:].abs().min() > 0
    assert not x_BTH[:, 2:].any()


def test_stride_lays_chains_over_the_rows_behind_their_starts() -> None:
    # Starts 1 and 4 of 7 rows, depth 3. Row 2 carries row 1's output, row 3 the new row
    # 2's; row 5 would too, and row 6 has no next token.
    laid = Laid(windows([1, 2, 3, 4, 5, 6, 7]), torch.tensor([7]))
    stride = Stride(3, torch.tensor([1]))
    hidden = rows([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    carried_BTH = spliced_rows(EchoDraft(), laid, hidden, 3, stride)
    assert carried_BTH[0, :, 0].tolist() == [0, 1, 103, 10304, 4, 406, 6]
    steps = list(unroll_stride(EchoDraft(), laid, hidden, 3, stride))
    read = [live(step.output_BTH, step.alive_BT) for step in steps]
    assert read == [[103, 406], [10304, 40607], [1030405]]


def test_rows_send_no_gradient_to_the_step_before() -> None:
    laid = Laid(windows([1, 2, 3]), torch.tensor([3]))
    hidden_BTH = rows([1.0, 1.0, 1.0]).requires_grad_()
    steps = unroll_rows(EchoDraft(), laid, hidden_BTH, 2)
    assert [step.output_BTH.requires_grad for step in steps] == [True, False]


def test_windows_shorter_than_a_chain_end_it() -> None:
    laid, hidden = Laid(windows([7, 3]), torch.tensor([2])), rows([1.0, 2.0])
    for steps in (
        unroll_rows(EchoDraft(), laid, hidden, 4),
        unroll_stride(EchoDraft(), laid, hidden, 4, Stride(4, torch.tensor([0]))),
    ):
        assert [live(s.output_BTH, s.alive_BT) for s in steps] == [[103], [], [], []]


def test_spliced_rows_are_f32_at_any_depth() -> None:
    laid, hidden = Laid(windows([7, 3]), torch.tensor([2])), rows([1.0, 2.0]).bfloat16()
    for depth in (1, 2):
        stride = Stride(4, torch.tensor([0]))
        carried_BTH = spliced_rows(EchoDraft(), laid, hidden, depth, stride)
        assert carried_BTH.dtype == torch.float32


def test_offsets_are_the_reference_s() -> None:
    assert stride_at((0, 1, 2, 9), 0, 7).offset_B.tolist() == [0, 5, 3, 3]
    assert stride_at((0, 1, 2, 9), 2, 7).offset_B.tolist() == [6, 4, 2, 2]
    laid = Laid(torch.zeros(4, WIDTH, dtype=torch.int64), torch.full((4,), WIDTH))
    starts_BT = stride_at((0, 1, 2, 9), 2, 7).starts(laid)
    for found_T, window in zip(starts_BT, (0, 1, 2, 9), strict=True):
        assert found_T.nonzero()[:, 0].tolist() == starts_of(window, 2, 7, WIDTH)


def made(make: Callable[[], TinyModel]) -> tuple[Draft, TinyModel, Tensor, Tensor]:
    model = make()
    shared = build_shared(
        model.arch, model.shapes, model.read, device="cpu", dtype=torch.float32
    )
    draft = build_draft(model.arch, model.shapes, model.read, shared)
    generator = torch.Generator().manual_seed(5)
    ids_BT = torch.randint(model.arch.vocab_size, (3, WIDTH), generator=generator)
    hidden_BTH = torch.randn(3, WIDTH, model.arch.hidden_size, generator=generator)
    return draft, model, ids_BT, hidden_BTH


def pieces(isolated: bool) -> Iterator[tuple[int, int, int]]:  # noqa: FBT001
    """Each stretch that is one sequence: its window, first row and end."""
    if not isolated:
        yield from ((b, 0, int(n)) for b, n in enumerate(LENGTH_B))
        return
    for b, at in pieces_of(RECORD_BT):
        yield b, at.start, min(at.stop, int(LENGTH_B[b]))


def assert_same(steps: list[ChainStep], expected: dict[tuple[int, int, int], Rows]) -> None:
    alive = {
        (b, p, step.step) for step in steps for b, p in step.alive_BT.nonzero().tolist()
    }
    assert alive == set(expected)
    for (b, p, j), wanted in expected.items():
        found = steps[j - 1].output_BTH[b, p].double().numpy()
        assert abs(found - wanted).max() < CLOSE, f"window {b}, start {p}, step {j}"


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("make", BUILDS)
def test_rows_equals_plain_loops(
    make: Callable[[], TinyModel],
    isolated: bool,  # noqa: FBT001
) -> None:
    draft, model, ids_BT, hidden_BTH = made(make)
    laid = Laid(ids_BT, LENGTH_B, RECORD_BT if isolated else None)
    with torch.no_grad():
        steps = list(unroll_rows(draft, laid, hidden_BTH, DEPTH))
    expected: dict[tuple[int, int, int], Rows] = {}
    for b, start, stop in pieces(isolated):
        alone: Chains = rows_chains(
            ids_BT[b, start:stop].tolist(),
            hidden_BTH[b, start:stop].double().numpy(),
            DEPTH,
            doubles(model),
            plain_of(model),
        )
        expected |= {(b, start + p, j): out for (p, j), out in alone.items()}
    assert_same(steps, expected)


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("make", BUILDS)
def test_stride_equals_plain_loops(
    make: Callable[[], TinyModel],
    isolated: bool,  # noqa: FBT001
) -> None:
    draft, model, ids_BT, hidden_BTH = made(make)
    laid = Laid(ids_BT, LENGTH_B, RECORD_BT if isolated else None)
    stride = stride_at((3, 0, 4), 1, EVERY)
    with torch.no_grad():
        steps = list(unroll_stride(draft, laid, hidden_BTH, DEPTH, stride))
    carried_BTH = spliced_rows(draft, laid, hidden_BTH, DEPTH, stride)
    expected: dict[tuple[int, int, int], Rows] = {}
    for b, first, stop in pieces(isolated):
        starts = starts_of((3, 0, 4)[b], 1, EVERY, WIDTH)
        own = [n - first for n in starts if first <= n < stop]
        carried, output = stride_sequence(
            ids_BT[b, first:stop].tolist(),
            hidden_BTH[b, first:stop].double().numpy(),
            DEPTH,
            own,
            doubles(model),
            plain_of(model),
        )
        for q in range(stop - first - 1):
            off = abs(carried_BTH[b, first + q].double().numpy() - carried[q]).max()
            assert off < CLOSE, f"window {b}, row {first + q}"
        expected |= {
            (b, first + n, j): output[n + j - 1]
            for n in own
            for j in range(1, DEPTH + 1)
            if n + j < stop - first
        }
    assert_same(steps, expected)


def test_the_first_chain_of_a_stride_is_a_decode_s() -> None:
    draft, _, ids_BT, hidden_BTH = made(tiny_qwen3)
    laid, stride = Laid(ids_BT, LENGTH_B), stride_at((1, 0, 2), 0, EVERY)
    first_B = stride.offset_B.tolist()
    with torch.no_grad():
        chains = unroll_stride(draft, laid, hidden_BTH, DEPTH, stride)
        exact = unroll_exact(draft, ids_BT, LENGTH_B, hidden_BTH, DEPTH)
        off = 0.0
        for one, wanted in zip(chains, exact, strict=True):
            for b, p in one.alive_BT.nonzero().tolist():
                gap = (one.output_BTH[b, p] - wanted.output_BTH[b, p]).abs().max().item()
                if p == first_B[b]:
                    assert gap < CLOSE, f"window {b}, step {one.step}"
                else:
                    off = max(off, gap)
    assert off > 1e-3  # the later ones see earlier chains: approximate


@pytest.mark.parametrize("layout", ["rows", "stride"])
@pytest.mark.parametrize("order", [(2, 0, 1), (1,)])
def test_windows_do_not_see_each_other(layout: str, order: tuple[int, ...]) -> None:
    draft, _, ids_BT, hidden_BTH = made(tiny_qwen3)

    def chains(at: list[int]) -> list[ChainStep]:
        laid = Laid(ids_BT[at], LENGTH_B[at], RECORD_BT[at])
        if layout == "rows":
            return list(unroll_rows(draft, laid, hidden_BTH[at], DEPTH))
        stride = stride_at(at, 2, EVERY)
        return list(unroll_stride(draft, laid, hidden_BTH[at], DEPTH, stride))

    with torch.no_grad():
        for whole, some in zip(chains([0, 1, 2]), chains([*order]), strict=True):
            for place, b in enumerate(order):
                assert torch.equal(some.alive_BT[place], whole.alive_BT[b])
                at_T = whole.alive_BT[b]
                # One GEMM of more or fewer rows may round another way.
                torch.testing.assert_close(
                    some.output_BTH[place][at_T],
                    whole.output_BTH[b][at_T],
                    rtol=0,
                    atol=CLOSE,
                )
