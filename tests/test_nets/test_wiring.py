"""Wiring: what each setting feeds a chain; a probe finds the one that was planted."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from conf.base import NORMED, RAW, Wiring
from nets.agreement import NO_TOKEN, agreement, behind, chance_rates, shifted, targets
from nets.draft import Draft
from nets.evaluate import Compute, evaluate
from nets.hold import Interval, count_starts, drafts_held
from nets.probe import probe_readings, read_as
from nets.source import Windows
from nets.wiring import (
    READINGS,
    Choices,
    Found,
    Reading,
    ReadingLine,
    compare_readings,
    verdict_of,
)
from tests.builders import tiny_llama, tiny_qwen3
from tests.oracles.rounds import round_from
from tests.oracles.trunk import Plain, Rows, norm
from tests.test_nets.chain_source import ListSource, draft_of, jitter, own_windows

torch.set_num_threads(1)

WIRINGS = [Wiring(hidden=h, chain=c) for h in ("raw", "normed") for c in ("raw", "normed")]
LENGTHS, WIDTH, DEPTH = (64, 64, 50, 64), 64, 3
COMPUTE = Compute(batch=3, dtype="f32", budget_bytes=1 << 20)


@torch.no_grad()
def strong_draft(wiring: Wiring, seed: int = 0) -> Draft:
    """A draft whose norms and whose trunk's final norm have gains far apart."""
    draft = draft_of(tiny_llama())
    draft.wiring = wiring
    generator = torch.Generator().manual_seed(seed)
    for norm_of in (draft.norm, draft.shared.final_norm):
        weight = norm_of.weight
        assert isinstance(weight, Tensor)
        weight.copy_(torch.randn(weight.shape, generator=generator).exp())
    return draft


def probed(draft: Draft, source: ListSource, convention: Wiring = RAW) -> Found:
    windows = range(len(source.whole.length_B))
    return compare_readings(
        probe_readings(draft, source, windows, DEPTH, COMPUTE), convention
    )


def held(draft: Draft, source: ListSource) -> float:
    found = evaluate(draft, source, Windows((0, 1, 2, 3), (0,) * 4), DEPTH, COMPUTE)
    return drafts_held(count_starts(found.arrays))


@pytest.mark.parametrize("planted", WIRINGS, ids=lambda wiring: wiring.text)
def test_the_planted_wiring_is_found_and_any_other_holds_less(planted: Wiring) -> None:
    draft = strong_draft(planted)
    source = own_windows(draft, LENGTHS, WIDTH, strange=0.5)
    found = probed(draft, source)
    assert (found.outcome, found.reading) == ("clear", Reading(planted, "emb_hid"))
    assert held(draft, source) == pytest.approx(DEPTH)
    by_reading = {line.reading: line for line in found.lines}
    assert by_reading[Reading(planted, "emb_hid")].rate_C == pytest.approx((1.0,) * DEPTH)
    for other in WIRINGS:
        if other != planted:
            draft.wiring = other
            assert held(draft, source) < DEPTH - 0.1, other.text
            assert by_reading[Reading(other, "emb_hid")].behind.low > 0


def test_the_controls_fall_to_chance() -> None:
    draft = strong_draft(NORMED)
    found = probed(draft, own_windows(draft, LENGTHS, WIDTH, strange=0.5))
    assert [control.name for control in found.controls] == ["shifted", "foreign"]
    for control in found.controls:
        assert all(
            rate < chance < 0.5
            for rate, chance in zip(control.rate_C, found.chance_C, strict=True)
        ), control


def test_halves_the_other_way_round_are_found() -> None:
    draft = strong_draft(RAW)
    source = own_windows(draft, LENGTHS, WIDTH, strange=0.5)
    with read_as(draft, Reading(RAW, "hid_emb")):  # as a file of the other order
        found = probed(draft, source)
    assert (found.outcome, found.reading) == ("swapped", Reading(RAW, "hid_emb"))


def test_a_probe_leaves_the_draft_as_it_was() -> None:
    draft = strong_draft(NORMED)
    before = {name: tensor.clone() for name, tensor in draft.state_dict().items()}
    probed(draft, own_windows(draft, LENGTHS, WIDTH))
    assert draft.wiring == NORMED
    for name, tensor in draft.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_a_draft_of_noise_holds_nothing() -> None:
    draft = strong_draft(RAW)
    source = own_windows(draft, LENGTHS, WIDTH, strange=0.5)
    found = probed(jitter(strong_draft(RAW), 30.0), source)
    assert (found.outcome, found.reading) == ("nothing", None)


@pytest.mark.parametrize("convention", WIRINGS, ids=lambda wiring: wiring.text)
def test_where_wiring_changes_nothing_the_format_s_own_is_taken(convention: Wiring) -> None:
    draft = draft_of(tiny_qwen3())
    with torch.no_grad():
        for norm_of in (draft.norm, draft.shared.final_norm):
            assert isinstance(norm_of.weight, Tensor)
            norm_of.weight.fill_(1.0)  # normed rows are raw ones but for their size
    source = own_windows(draft, LENGTHS, WIDTH, strange=0.5)
    found = probed(draft, source, convention)
    assert (found.outcome, found.reading) == ("same", Reading(convention, "emb_hid"))


@pytest.mark.parametrize(
    ("lead", "used"),
    [
        (Interval(0.002, 0.03), ("same", RAW)),  # surely less, and surely under 2 % of 1.6
        (Interval(-0.01, 0.03), ("same", RAW)),
        (Interval(0.002, 0.04), ("clear", NORMED)),
        (Interval(-0.01, 0.04), ("unclear", None)),
    ],
)
def test_less_than_counts_is_as_good_however_sure(
    lead: Interval, used: tuple[str, Wiring | None]
) -> None:
    lines = [
        ReadingLine(Reading(NORMED, "emb_hid"), (1.6,), 1.6, Interval(0.0, 0.0)),
        ReadingLine(Reading(RAW, "emb_hid"), (1.58,), 1.58, lead),
        ReadingLine(Reading(RAW, "hid_emb"), (0.2,), 0.2, Interval(1.3, 1.5)),
    ]
    outcome, reading = verdict_of(lines, RAW)
    assert (outcome, reading and reading.wiring) == used


def wired_rounds(
    ids: Sequence[int], hidden: Rows, tensors: dict[str, Rows], plain: Plain, wiring: Wiring
) -> dict[tuple[int, int], Rows]:
    """Rounds one at a time, each norm applied where healing.md §3 has it."""
    if wiring.hidden == "normed":
        hidden = np.stack(
            [norm(h, tensors["model.norm.weight"], plain.eps) for h in hidden]
        )
    outputs = {}
    for start in range(len(ids) - 1):
        draft, carried = round_from(start, ids, hidden, tensors, plain), hidden[start]
        for step in range(1, min(DEPTH, len(ids) - 1 - start) + 1):
            out = draft.feed(ids[start + step], carried, start + step - 1)
            outputs[start, step] = carried = out
            if wiring.chain == "normed":
                carried = norm(out, tensors["model.mtp.norm.weight"], plain.eps)
    return outputs


@pytest.mark.parametrize("wiring", WIRINGS, ids=lambda wiring: wiring.text)
def test_every_start_equals_a_round_of_its_own_under_each_wiring(wiring: Wiring) -> None:
    draft, length = strong_draft(wiring), 9
    arch = draft.shared.arch
    source = own_windows(draft, (length,), length, strange=1.0)
    tensors = {name: tensor.double().numpy() for name, tensor in draft.tensors().items()}
    tensors["model.embed_tokens.weight"] = draft.shared.embed_VH.double().numpy()
    final_gain = draft.shared.final_norm.weight
    assert isinstance(final_gain, Tensor)
    tensors["model.norm.weight"] = final_gain.detach().double().numpy()
    plain = Plain(0, arch.head_dim, arch.rms_norm_eps, arch.rope_theta)
    batch = source.whole
    ids, hidden = batch.ids_BT[0].tolist(), batch.hidden_BTH[0].double().numpy()
    expected = wired_rounds(ids, hidden, tensors, plain, wiring)
    with torch.no_grad():
        steps = list(batch.chains(draft, DEPTH))
    for (p, step), rows in expected.items():
        found = steps[step - 1].output_BTH[0, p].double().numpy()
        # f32 against f64 over a handful of products of 32 terms, gains up to 10.
        assert abs(found - rows).max() < 1e-4, f"start {p}, step {step}"


Tokens = NDArray[np.int64]


def made_choices(
    top1_WT: Tokens, rates: dict[Reading, float], seed: int = 1
) -> dict[Reading, Tokens]:
    """Choices that agree with the targets at a known rate, each reading by itself."""
    generator = np.random.default_rng(seed)
    length_W = np.full(len(top1_WT), top1_WT.shape[1])
    target_WTC = targets(top1_WT, length_W, 2)
    made = {}
    for reading in READINGS:
        agrees = generator.random(target_WTC.shape) < rates.get(reading, 0.1)
        wrong = np.where(target_WTC == NO_TOKEN, NO_TOKEN, 10_000)
        made[reading] = np.where(agrees, target_WTC, wrong)
    return made


def verdict(
    top1_WT: Tokens, rates: dict[Reading, float], convention: Wiring = RAW
) -> Found:
    length_W = np.full(len(top1_WT), top1_WT.shape[1])
    choices = Choices(made_choices(top1_WT, rates), top1_WT, length_W)
    return compare_readings(choices, convention)


def random_tokens(windows: int, width: int = 64) -> Tokens:
    return np.random.default_rng(1).integers(500, size=(windows, width))


def test_a_lead_that_may_be_chance_decides_nothing() -> None:
    rates = {Reading(RAW, "emb_hid"): 0.50, Reading(NORMED, "emb_hid"): 0.52}
    assert verdict(random_tokens(4), rates).outcome == "unclear"
    # The same lead on a hundred times the rows is one.
    assert verdict(random_tokens(400), rates).reading == Reading(NORMED, "emb_hid")


def test_windows_that_repeat_each_other_are_a_leak() -> None:
    top1_WT = np.repeat(random_tokens(1), 4, axis=0)
    found = verdict(top1_WT, {Reading(RAW, "emb_hid"): 0.8})
    assert (found.outcome, found.reading) == ("leak", None)
    shifted_one, foreign = found.controls
    assert foreign.rate_C == pytest.approx(found.lines[0].rate_C)
    assert max(shifted_one.rate_C) < 0.05


def test_text_with_a_period_of_half_a_window_is_a_leak() -> None:
    top1_WT = np.tile(random_tokens(4, 32), (1, 2))
    found = verdict(top1_WT, {Reading(RAW, "emb_hid"): 0.8})
    assert found.outcome == "leak"
    assert found.controls[0].low_C[0] > found.chance_C[0]


def test_text_of_one_token_tells_nothing() -> None:
    found = verdict(np.full((4, 64), 7), {Reading(RAW, "emb_hid"): 0.9})
    assert (found.outcome, found.chance_C) == ("nothing", (1.0, 1.0))


def test_agreement_and_chance_are_what_loops_count() -> None:
    generator = np.random.default_rng(3)
    top1_WT, length_W = generator.integers(4, size=(3, 40)), np.array([40, 33, 7])
    choice_WTC = generator.integers(4, size=(3, 40, 2))
    moved_WT = shifted(top1_WT, length_W)
    for j in (1, 2):
        rows = agreed = most = moved = 0
        for w, length in enumerate(length_W.tolist()):
            seen = [int(top1_WT[w, p + j]) for p in range(length - j)]
            rows += len(seen)
            agreed += sum(int(choice_WTC[w, p, j - 1]) == t for p, t in enumerate(seen))
            most += max(seen.count(t) for t in seen)
            moved += sum(
                int(choice_WTC[w, p, j - 1]) == top1_WT[w, (p + j + length // 2) % length]
                for p in range(length - j)
            )
        target_WTC = targets(top1_WT, length_W, 2)
        assert agreement(choice_WTC, target_WTC).rates[j - 1] == agreed / rows
        assert chance_rates(target_WTC)[j - 1] == most / rows
        far_WTC = targets(moved_WT, length_W, 2)
        assert agreement(choice_WTC, far_WTC).rates[j - 1] == moved / rows


def test_behind_is_the_difference_and_its_error() -> None:
    target_WTC = targets(random_tokens(50), np.full(50, 64), 2)
    made = made_choices(random_tokens(50), {READINGS[0]: 0.6, READINGS[1]: 0.4})
    one, best = (agreement(made[reading], target_WTC) for reading in READINGS[1::-1])
    gap = behind(one, best)
    assert gap.low < best.drafts - one.drafts < gap.high
    # Rows drawn one by one: the variance of each step's difference is p(1-p) + q(1-q).
    error = (2 * (0.24 + 0.24) / (50 * 63)) ** 0.5
    assert gap.high - gap.low == pytest.approx(2 * 2.576 * error, rel=0.15)
