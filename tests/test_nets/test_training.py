"""Training: its gradient, its first step, what it heals; a cut run ends bit-equal."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor

from conf.base import RAW
from conf.training import TrainSettings
from nets.chain import unroll_exact
from nets.draft import Draft
from nets.errors import TrainingError
from nets.evaluate import Compute, evaluate
from nets.fit_state import FitFacts, FitState
from nets.hold import reach
from nets.losses import tail_kl
from nets.objective import chain_sums
from nets.source import Windows
from nets.training import FitRuntime, FitWindows, fit
from tests.builders import tiny_llama, tiny_qwen3
from tests.test_nets.chain_source import (
    ListSource,
    draft_of,
    jitter,
    own_windows,
    qwen3_windows,
    stale,
)

torch.set_num_threads(1)

TRAIN, WIDTH = tuple(range(8)), 20
WINDOWS = FitWindows(TRAIN, Windows((8, 9, 10, 11), (0, 0, 1, 1)))
SETTINGS = TrainSettings(
    wiring=RAW,
    depth=3,
    trainable="block",
    lr=1e-3,
    steps=9,
    batch=2,
    eval_every=3,
    eval_windows=None,
    patience=None,
    select_by="walk",
    on_path=False,
    anchors=None,
    seed=0,
    dtype="f32",
    hard=0.0,
    through_chain=False,
)
QUIET = FitRuntime(budget_bytes=1)


def change(**fields: object) -> TrainSettings:
    return SETTINGS.model_copy(update=fields)


@pytest.fixture(scope="module")
def source() -> ListSource:
    return qwen3_windows(WIDTH, 12)


def plain_chain_losses(
    draft: Draft,
    source: ListSource,
    windows: Sequence[int],
    anchors: Collection[tuple[int, int]] | None = None,
) -> Tensor:
    """Each step's mean loss over full logits; later steps from `anchors` only."""
    batch, losses = source.batch(windows), []
    for step in unroll_exact(draft, batch.ids_BT, batch.length_B, batch.hidden_BTH, 3):
        total, rows = torch.zeros(()), 0
        for b in range(len(windows)):
            for p in range(int(batch.length_B[b]) - step.step):
                if step.step > 1 and anchors is not None and (b, p) not in anchors:
                    continue
                z_1V = (
                    draft.read_out(step.output_BTH[b, p : p + 1]) @ draft.shared.head_VH.T
                )
                at = (b, slice(p + step.step, p + step.step + 1))
                total = (
                    total + tail_kl(z_1V, batch.topk_id_BTK[at], batch.topk_p_BTK[at]).sum()
                )
                rows += 1
        losses.append(total / rows)
    return torch.stack(losses)


def gradients(draft: Draft, loss: Tensor) -> dict[str, Tensor]:
    parameters = dict(draft.named_parameters())
    found = torch.autograd.grad(loss, list(parameters.values()))
    return dict(zip(parameters, found, strict=True))


@pytest.mark.parametrize("make", [tiny_llama, tiny_qwen3])
def test_chain_loss_and_gradient_are_autograd_s_over_full_logits(make: type) -> None:
    draft = draft_of(make())
    draft.trainable("all")
    source = own_windows(draft, (9, 6), 9)
    jitter(draft, 0.3)
    weight_C = torch.tensor([1.0, 0.5, 0.2])
    plain_C = plain_chain_losses(draft, source, (0, 1))
    plain = gradients(draft, (weight_C * plain_C).sum())
    fused_C = chain_sums(draft, source.batch((0, 1)), 3, Compute(2, "f32", 1)).means()
    fused = gradients(draft, (weight_C * fused_C).sum())
    assert fused_C.tolist() == pytest.approx(plain_C.tolist(), rel=1e-5)
    for name, expected in plain.items():
        off = (fused[name] - expected).abs().max() / expected.abs().max()
        # f32 sums over some 20 rows in another order, through one layer.
        assert off.item() < 1e-4, name


def test_rows_that_are_not_chosen_never_reach_the_loss() -> None:
    draft = draft_of(tiny_qwen3())
    source = own_windows(draft, (9, 6), 9)
    jitter(draft, 0.3)
    anchors = {(0, 0), (0, 5), (1, 2)}
    chosen_BTC = torch.zeros(2, 9, 3, dtype=torch.bool)
    chosen_BTC[:, :, 0] = True
    for b, p in anchors:
        chosen_BTC[b, p] = True
    plain_C = plain_chain_losses(draft, source, (0, 1), anchors)
    compute = Compute(2, "f32", 1)
    fused_C = chain_sums(draft, source.batch((0, 1)), 3, compute, chosen_BTC).means()
    assert fused_C.tolist() == pytest.approx(plain_C.tolist(), rel=1e-5)


def test_the_first_step_is_adam_s_on_the_clipped_reach_weighted_gradient(
    source: ListSource,
) -> None:
    draft, windows = stale(), FitWindows((0, 1), WINDOWS.held_out)
    before = {name: p.detach().clone() for name, p in draft.named_parameters()}
    states: list[FitState] = []
    runtime = replace(QUIET, save=states.append, save_every_s=0.0)
    result = fit(draft, source, windows, change(steps=1, trainable="all"), runtime)
    other = stale()
    other.trainable("all")
    weight_C = torch.tensor(reach(result.start.hold_rates))
    loss = (weight_C * plain_chain_losses(other, source, (0, 1))).sum() / weight_C.sum()
    gradient = gradients(other, loss)
    norm = sum(float(g.double().square().sum()) for g in gradient.values()) ** 0.5
    assert result.steps[0].loss == pytest.approx(loss.item(), rel=1e-5)
    assert result.steps[0].grad_norm == pytest.approx(norm, rel=1e-4)
    for name, g in gradient.items():
        clipped = g * min(1.0, 1.0 / norm)
        # A first step's bias-corrected moments are g and g²: a move of lr·g/(|g| + ε).
        expected = before[name] - SETTINGS.lr * clipped / (clipped.abs() + 1e-8)
        moved = states[0].tensors[f"weight/{name}"]
        # Entries that are all rounding may differ in sign: those below 1e-4 of the largest.
        sure = g.abs() > 1e-4 * g.abs().max()
        torch.testing.assert_close(moved[sure], expected[sure], atol=1e-6, rtol=0)


def test_training_heals_a_stale_draft_and_leaves_it_at_its_best() -> None:
    source = own_windows(draft_of(tiny_qwen3()), [WIDTH] * 80, WIDTH, strange=0.05)
    windows = FitWindows(tuple(range(64)), Windows(tuple(range(64, 80)), (0,) * 16))
    draft = stale()
    settings = change(steps=60, eval_every=20, lr=5e-3, batch=8)
    result = fit(draft, source, windows, settings, QUIET)
    # The draft that wrote the windows holds 3 of 3 at KL 0. From 1280 rows the stale one
    # learns some of that for windows it never saw (measured: D 0.7 to 1.5, KL to a fifth).
    assert result.start.walk < 1.0
    assert result.best.walk > result.start.walk + 0.5
    assert result.best.kl[0] < 0.35 * result.start.kl[0]
    found = evaluate(draft, source, windows.held_out, 3, Compute(8, "f32", 1))
    assert found.kl_C == result.best.kl


def test_only_what_is_trainable_moves(source: ListSource) -> None:
    start = stale().tensors()
    moved = {}
    for which in ("block", "all"):
        draft = stale()
        fit(draft, source, WINDOWS, change(steps=60, lr=5e-3, trainable=which), QUIET)
        after = draft.tensors()
        moved[which] = {n for n in start if not torch.equal(start[n], after[n])}
    outside = {f"model.mtp.{name}.weight" for name in ("enorm", "hnorm", "eh_proj")}
    assert moved["block"] == set(start) - outside
    assert moved["all"] == set(start)


def with_bad_windows(source: ListSource, *windows: int) -> ListSource:
    """Negative mass has no logarithm: these windows' losses are NaN, their rows finite."""
    p = source.whole.topk_p_BTK.clone()
    p[list(windows)] = -1.0
    return ListSource(replace(source.whole, topk_p_BTK=p))


def run_saving(source: ListSource, settings: TrainSettings) -> tuple[Draft, list[FitState]]:
    draft, states = stale(), list[FitState]()
    fit(
        draft,
        source,
        WINDOWS,
        settings,
        replace(QUIET, save=states.append, save_every_s=0.0),
    )
    return draft, states


def through_files(state: FitState) -> FitState:
    tensors = load_safetensors(save_safetensors(dict(state.tensors)))
    return FitState(tensors, FitFacts.model_validate_json(state.facts.model_dump_json()))


@pytest.mark.parametrize(
    ("dtype", "optimizer", "lr"),
    [("f32", "adam", 5e-3), ("bf16", "adam", 5e-3), ("f32", "muon", 5e-2)],
)
def test_a_run_cut_anywhere_ends_bit_equal(
    source: ListSource, dtype: str, optimizer: str, lr: float
) -> None:
    settings = change(
        trainable="all", eval_every=2, lr=lr, seed=5, dtype=dtype, optimizer=optimizer
    )
    source = with_bad_windows(source, 5)
    whole, states = run_saving(source, settings)
    expected = fit(stale(), source, WINDOWS, settings, QUIET)
    assert expected.skipped > 0
    assert not expected.evaluations[-1].is_best
    for state in (states[0], states[3], states[4], states[-1]):
        cut = draft_of(tiny_qwen3())
        result = fit(
            cut, source, WINDOWS, settings, replace(QUIET, resume=through_files(state))
        )
        assert result == expected
        for name, tensor in whole.tensors().items():
            assert torch.equal(tensor, cut.tensors()[name]), (
                f"{name}, cut at {len(result.steps)}"
            )


def test_evaluating_changes_no_weight(source: ListSource) -> None:
    # Depth 1, where the reach weights that an evaluation sets have nothing to weigh.
    often = run_saving(source, change(depth=1, eval_every=1))[1][-1].tensors
    rarely = run_saving(source, change(depth=1, eval_every=100))[1][-1].tensors
    for name in often:
        if name.startswith(("weight/", "moment")):
            assert torch.equal(often[name], rarely[name]), name


def test_no_gain_stops_after_patience_and_keeps_the_start(source: ListSource) -> None:
    draft, start = stale(), stale().tensors()
    settings = change(steps=50, eval_every=2, patience=3, lr=1e-12)
    result = fit(draft, source, WINDOWS, settings, QUIET)
    assert [record.step for record in result.evaluations] == [0, 2, 4, 6]
    assert result.best.step == 0
    for name, tensor in draft.tensors().items():
        assert torch.equal(tensor, start[name]), name


def test_a_step_that_is_not_finite_is_left_out(source: ListSource) -> None:
    # 4 batches a pass, one of them bad: 9 counted steps are 3 whole passes, 3 skips.
    settings = change(eval_every=100)
    bad, good = stale(), stale()
    states: list[FitState] = []
    runtime = replace(QUIET, save=states.append, save_every_s=0.0)
    result = fit(bad, with_bad_windows(source, 5), WINDOWS, settings, runtime)
    assert [record.step for record in result.steps] == [*range(1, 10)]
    assert result.skipped in (
        2,
        3,
    )  # the last pass ends before its bad batch if that is last
    assert all(tensor.isfinite().all() for tensor in states[-1].tensors.values())
    calm = FitWindows(tuple(w for w in TRAIN if w not in (4, 5)), WINDOWS.held_out)
    assert len(fit(good, source, calm, settings, QUIET).steps) == 9


def test_the_20th_such_step_ends_the_run_and_names_its_windows(source: ListSource) -> None:
    draft, start = stale(), stale().tensors()
    with pytest.raises(TrainingError, match=r"step 1, windows \d, \d: .*20th"):
        fit(draft, with_bad_windows(source, *TRAIN), WINDOWS, SETTINGS, QUIET)
    for name, tensor in draft.tensors().items():
        assert torch.equal(tensor, start[name]), name


def test_too_few_windows_for_a_batch_are_refused(source: ListSource) -> None:
    few = FitWindows((0,), WINDOWS.held_out)
    with pytest.raises(TrainingError, match="1 training windows don't fill a batch of 2"):
        fit(stale(), source, few, SETTINGS, QUIET)


def test_held_out_windows_are_capped_by_data_set(source: ListSource) -> None:
    fresh = ListSource(source.whole)
    fit(stale(), fresh, WINDOWS, change(steps=1, eval_windows=1), QUIET)
    assert fresh.asked[0] == (8, 10)
