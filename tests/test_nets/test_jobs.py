"""Training on `rows` and `stride`: the kinds, their inputs' age, and a run cut anywhere."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from conf.base import RAW
from conf.training import TrainSettings
from nets.draft import Draft
from nets.errors import TrainingError
from nets.evaluate import Compute, evaluate
from nets.fit_state import FitState
from nets.hold import count_walk, rates
from nets.jobs import KindJobs
from nets.source import Windows
from nets.training import FitResult, FitRuntime, FitWindows, fit
from tests.builders import tiny_qwen3, tiny_qwen3_moe
from tests.hf_peer import doubles, plain_of
from tests.oracles.layouts import rows_chains, starts_of, stride_sequence
from tests.oracles.losses import tail_kl_row
from tests.oracles.order import reference_order
from tests.oracles.rounds import DecodingDraft
from tests.oracles.trunk import Rows
from tests.test_nets.chain_source import (
    ListSource,
    draft_of,
    own_windows,
    qwen3_windows,
    stale,
)
from tests.test_nets.test_training import through_files, with_bad_windows

torch.set_num_threads(1)

DEPTH, WIDTH, STRIDE = 3, 12, 4
TRAIN = tuple(range(8))
WINDOWS = FitWindows(TRAIN, Windows((8, 9, 10), (0, 0, 0)))
COMPUTE = Compute(2, "f32", 1)
QUIET = FitRuntime(budget_bytes=1)
LAYOUTS = ("rows", "stride")


def settings_of(layout: str, **fields: object) -> TrainSettings:
    base = TrainSettings(
        wiring=RAW,
        depth=DEPTH,
        trainable="block",
        lr=5e-3,
        steps=9,
        batch=2,
        eval_every=3,
        patience=None,
        refresh=4,
        dtype="f32",
        hard=0.0,
    )
    change = {"layout": layout, "stride": STRIDE if layout == "stride" else None}
    return TrainSettings.model_validate(base.model_dump() | change | fields)


@pytest.fixture(scope="module")
def source() -> ListSource:
    return qwen3_windows(WIDTH, 11)


def doubles_of(draft: Draft) -> dict[str, Rows]:
    own = {name: tensor.double().numpy() for name, tensor in draft.tensors().items()}
    return doubles(tiny_qwen3()) | own


def plain_kind(
    past: Draft, live: Draft, source: ListSource, window: int, kind: tuple[str, int]
) -> list[float]:
    """`tail_kl` of each row of a kind in round 1: input by `past`, output by `live`."""
    layout, number = kind
    whole, plain = source.whole, plain_of(tiny_qwen3())
    count = int(whole.length_B[window])
    ids = whole.ids_BT[window, :count].tolist()
    hidden = whole.hidden_BTH[window, :count].double().numpy()
    carried: list[Rows] = [*hidden]
    shift = 1
    if layout == "rows" and number > 0:
        made = rows_chains(ids, hidden, number, doubles_of(past), plain)
        carried = [made.get((p, number), carried[p]) for p in range(count)]
        shift = number + 1
    elif number > 0:
        starts = starts_of(window, 1, STRIDE, count)
        given = (ids, hidden, DEPTH, starts, doubles_of(past), plain)
        carried, _ = stride_sequence(*given)
    tensors = doubles_of(live)
    draft, found = DecodingDraft(tensors, plain), []
    head = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
    for p in range(count - shift):
        row = draft.normed(draft.feed(ids[p + shift], carried[p], p), "model.mtp.norm")
        top = whole.topk_id_BTK[window, p + shift].tolist()
        mass = whole.topk_p_BTK[window, p + shift].tolist()
        found.append(tail_kl_row((head @ row).tolist(), top, mass))
    return found


def stale_jobs(layout: str, source: ListSource) -> tuple[KindJobs, Draft, Draft]:
    """Jobs whose inputs are by one draft and whose weights are another's, in round 1."""
    live, past = stale(0), stale(1)
    live.trainable("block")
    jobs = KindJobs(live, settings_of(layout), COMPUTE)
    kept = {f"inputs/{name}": p.detach() for name, p in past.named_parameters()}
    jobs.load(kept, 1)
    return jobs, live, past


@pytest.mark.parametrize("kind", [("rows", 0), ("rows", 1), ("rows", 2), ("stride", 1)])
def test_a_kind_s_loss_is_plain_loops_over_its_old_inputs(
    source: ListSource, kind: tuple[str, int]
) -> None:
    jobs, live, past = stale_jobs(kind[0], source)
    each = [plain_kind(past, live, source, window, kind) for window in (3, 10)]
    (found,) = jobs.losses(source.batch((3, 10)), (3, 10), kind[1]).means()
    expected = sum(map(sum, each)) / sum(map(len, each))
    assert found.item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_held_out_kl_is_of_every_kind_and_every_row(
    source: ListSource, layout: str
) -> None:
    jobs, live, past = stale_jobs(layout, source)
    found = jobs.held_out_kl(source, (8, 9, 10))  # two batches, the last not full
    for kind, kl in enumerate(found):
        rows = [
            row
            for window in (8, 9, 10)
            for row in plain_kind(past, live, source, window, (layout, kind))
        ]
        assert kl == pytest.approx(sum(rows) / len(rows), rel=1e-4), kind
    assert len(found) == (DEPTH if layout == "rows" else 2)


@pytest.mark.parametrize("kind", [("rows", 2), ("stride", 1)])
def test_the_gradient_is_the_slope_with_the_inputs_held(
    source: ListSource, kind: tuple[str, int]
) -> None:
    jobs, live, _ = stale_jobs(kind[0], source)
    trained = [p for p in live.parameters() if p.requires_grad]
    batch = source.batch((3, 10))
    found = torch.autograd.grad(jobs.losses(batch, (3, 10), kind[1]).means(), trained)
    generator = torch.Generator().manual_seed(2)
    move = [
        torch.randn(p.shape, generator=generator) * p.detach().abs().mean() for p in trained
    ]
    slope = sum(float((g * m).sum()) for g, m in zip(found, move, strict=True))
    width, ends = 2e-3, []
    for sign in (1, -1):
        with torch.no_grad():
            for parameter, m in zip(trained, move, strict=True):
                parameter.add_(sign * width * m)
            ends.append(jobs.losses(batch, (3, 10), kind[1]).means().item())
            for parameter, m in zip(trained, move, strict=True):
                parameter.sub_(sign * width * m)
    # Central differences of f32 losses: 1e-7 / 4e-3 of rounding, and the third derivative.
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * width), rel=5e-3, abs=1e-3)


def run_saving(
    source: ListSource, settings: TrainSettings
) -> tuple[FitResult, Draft, list[FitState]]:
    draft, states = stale(), list[FitState]()
    runtime = replace(QUIET, save=states.append, save_every_s=0.0)
    return fit(draft, source, WINDOWS, settings, runtime), draft, states


@pytest.mark.parametrize("layout", LAYOUTS)
def test_jobs_come_in_the_reference_s_order(source: ListSource, layout: str) -> None:
    kinds = DEPTH if layout == "rows" else 2
    settings = settings_of(layout, steps=4 * kinds, eval_every=100)
    fresh = ListSource(source.whole)
    result = fit(stale(), fresh, WINDOWS, settings, QUIET)
    order = reference_order(4 * kinds)  # batch by batch, before the first shuffle
    assert [record.kind for record in result.steps] == [job % kinds for job in order]
    trained = [asked for asked in fresh.asked if asked[0] < 8]
    assert trained == [(job // kinds * 2, job // kinds * 2 + 1) for job in order]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("refresh", "steps", "made_at"),
    [
        (3, 9, [0, 0, 3, 3, 3, 6, 6, 6, 6]),  # not after the last
        (4, 9, [0, 0, 0, 4, 4, 4, 4, 8, 8]),
        (0, 4, [0, 0, 0, 0]),
    ],
)
def test_inputs_are_of_the_last_refresh(
    source: ListSource, layout: str, refresh: int, steps: int, made_at: Sequence[int]
) -> None:
    settings = settings_of(layout, refresh=refresh, steps=steps)
    _, _, states = run_saving(source, settings)
    start = dict(stale().named_parameters())
    for state, made in zip(states, made_at, strict=True):
        expected_round = made // refresh if refresh else 0
        assert state.facts.refresh_round == expected_round
        for name, begun in start.items():
            wanted = begun.detach()
            if made > 0 and begun.requires_grad:
                wanted = states[made - 1].tensors.get(f"weight/{name}", wanted)
            assert torch.equal(state.tensors[f"inputs/{name}"], wanted), (name, made)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_evaluation_due_with_a_refresh_reads_new_inputs_and_exact_chains(
    source: ListSource, layout: str
) -> None:
    settings = settings_of(layout, refresh=3, steps=6)
    result, _, states = run_saving(source, settings)
    now = draft_of(tiny_qwen3())
    with torch.no_grad():
        for name, parameter in now.named_parameters():
            parameter.copy_(states[2].tensors.get(f"weight/{name}", parameter))
    at_3 = result.evaluations[1]
    jobs = KindJobs(now, settings, COMPUTE)
    jobs.round = 1
    assert at_3.step == 3
    assert at_3.kind_kl == jobs.held_out_kl(source, WINDOWS.held_out.index)
    found = evaluate(now, source, WINDOWS.held_out, DEPTH, COMPUTE)
    assert at_3.kl == found.kl_C
    assert at_3.hold_rates == rates(count_walk(found.arrays))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_cut_anywhere_ends_bit_equal(source: ListSource, layout: str) -> None:
    bad = with_bad_windows(source, 5)
    settings = settings_of(layout, steps=10, eval_every=2, seed=5)
    expected, whole, states = run_saving(bad, settings)
    assert expected.skipped > 0
    for state in states[::2]:
        cut = draft_of(tiny_qwen3())
        runtime = replace(QUIET, resume=through_files(state))
        assert fit(cut, bad, WINDOWS, settings, runtime) == expected
        for name, tensor in whole.tensors().items():
            at = len(state.facts.steps)
            assert torch.equal(tensor, cut.tensors()[name]), f"{name}, cut at {at}"


def test_b7_a_step_that_is_not_finite_halves_the_loss_scale(source: ListSource) -> None:
    result, _, states = run_saving(with_bad_windows(source, 5), settings_of("rows"))
    assert result.skipped > 0
    assert states[-1].facts.loss_scale == 4096 / 2**result.skipped


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_stale_draft_is_healed(layout: str) -> None:
    source = own_windows(draft_of(tiny_qwen3()), [WIDTH] * 44, WIDTH, strange=0.05)
    windows = FitWindows(tuple(range(36)), Windows(tuple(range(36, 44)), (0,) * 8))
    settings = settings_of(layout, steps=60, eval_every=20, refresh=10, batch=4)
    result = fit(stale(), source, windows, settings, QUIET)
    assert result.best.walk > result.start.walk + 0.2
    for before, after in zip(result.start.kind_kl, result.best.kind_kl, strict=True):
        assert after < 0.7 * before


def test_a_stride_of_depth_1_has_the_trunk_s_rows_only(source: ListSource) -> None:
    settings = settings_of("stride", depth=1)
    assert settings.kinds == 1
    result = fit(stale(), source, WINDOWS, settings, QUIET)
    assert {record.kind for record in result.steps} == {0}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_experts_with_records_apart_are_refused(source: ListSource, layout: str) -> None:
    draft = draft_of(tiny_qwen3_moe())
    whole = source.whole
    apart = ListSource(replace(whole, record_BT=torch.zeros_like(whole.ids_BT)))
    batch = replace(apart.batch((0,)), record_BT=torch.zeros(1, WIDTH, dtype=torch.int64))
    assert draft.geometry.layer.is_sparse
    jobs = KindJobs(draft, settings_of(layout), COMPUTE)
    with pytest.raises(TrainingError, match=r"exact or pack\.isolate: false"):
        jobs.losses(batch, (0,), 0)
