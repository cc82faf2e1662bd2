"""Decoding with a draft: the trunk's own text, and rounds as plain loops count them."""

from collections.abc import Callable

import pytest
import torch

from conf.base import NORMED, RAW, Wiring
from nets.chain import unroll_exact
from nets.decode import Decoded, Decoding, decode, logit_gap, lower_products
from nets.decode_trunk import CachedTrunk
from nets.draft import Draft, build_draft
from nets.trunk import Trunk, build_trunk
from tests.builders import (
    EVERY_FAMILY,
    TinyModel,
    TinySpec,
    tiny_llama,
    tiny_mistral,
    tiny_qwen3,
    tiny_qwen3_5,
)

torch.set_num_threads(1)

PROMPT = [3, 1, 4, 1, 0, 2]
DEPTH = 3
DECODING = Decoding(length=24, depth=DEPTH, ends=frozenset(), budget_bytes=1 << 20)
Build = Callable[[TinySpec], TinyModel]


def trunk_and_draft(
    tiny: Build, dtype: torch.dtype = torch.float32, wiring: Wiring = RAW
) -> tuple[Trunk, Draft]:
    # Five tokens and a seed with which untrained drafts hit now and then.
    model = tiny(TinySpec(vocab=5, seed=2))
    trunk = build_trunk(*model, device="cpu", dtype=dtype)
    return trunk, build_draft(*model, trunk.shared, wiring)


def written_anew(trunk: Trunk, length: int) -> list[int]:
    """The greedy text by whole forwards, without a cache."""
    ids = list(PROMPT)
    for _ in range(length):
        last_1H = trunk.hidden(torch.tensor([ids]))[0, -1:]
        ids.append(int(trunk.logits(last_1H).argmax()))
    return ids


@pytest.mark.parametrize("tiny", EVERY_FAMILY)
def test_the_text_is_the_trunk_s_own_with_and_without_a_draft(tiny: Build) -> None:
    trunk, draft = trunk_and_draft(tiny)
    wanted = written_anew(trunk, DECODING.length)[len(PROMPT) :]
    assert list(decode(trunk, None, PROMPT, DECODING).ids) == wanted
    found = decode(trunk, draft, PROMPT, DECODING)
    assert list(found.ids) == wanted
    assert found.kept < found.drafted, "a cache that is never cut proves nothing"


def rounds_counted(trunk: Trunk, draft: Draft, ids: list[int]) -> tuple[int, int]:
    """Rounds and kept drafts over the finished text, from the chains of every start.

    A round that starts at row p drafts from there; as long as a draft is the text's own
    token it is kept, and the next start lies behind what was kept.
    """
    text_1T = torch.tensor([ids])
    chains = unroll_exact(
        draft, text_1T, torch.tensor([len(ids)]), trunk.hidden(text_1T), DEPTH
    )
    with torch.no_grad():
        drafts = [
            (draft.read_out(s.output_BTH[0]) @ trunk.shared.head_VH.T).argmax(-1).tolist()
            for s in chains
        ]
    rounds = kept = 0
    p = len(PROMPT) - 1
    while p + 2 < len(ids):
        held = 0
        # The last token of all is the trunk's, whatever room is left for drafts.
        while held < min(DEPTH, len(ids) - p - 3) and drafts[held][p] == ids[p + 2 + held]:
            held += 1
        rounds, kept, p = rounds + 1, kept + held, p + held + 1
    return rounds, kept


@pytest.mark.parametrize("wiring", [RAW, NORMED])
@pytest.mark.parametrize("tiny", [tiny_llama, tiny_qwen3, tiny_qwen3_5])
def test_rounds_are_those_of_the_exact_chains(tiny: Build, wiring: Wiring) -> None:
    trunk, draft = trunk_and_draft(tiny, wiring=wiring)
    found = decode(trunk, draft, PROMPT, DECODING)
    rounds, kept = rounds_counted(trunk, draft, [*PROMPT, *found.ids])
    assert (found.rounds, found.kept) == (rounds, kept)
    assert len(found.ids) == 1 + rounds + kept
    assert found.tokens_a_round == pytest.approx((len(found.ids) - 1) / rounds)


def test_some_drafts_hold_and_some_do_not() -> None:
    """The counts above would agree at 0 kept too."""
    every = [
        decode(*trunk_and_draft(tiny), PROMPT, DECODING)
        for tiny in (tiny_llama, tiny_qwen3, tiny_qwen3_5)
    ]
    assert sum(one.kept for one in every) > 3


def test_an_end_token_ends_the_text_inside_a_round_too() -> None:
    trunk, draft = trunk_and_draft(tiny_llama)
    whole = decode(trunk, None, PROMPT, DECODING).ids
    for end in set(whole):
        decoding = Decoding(24, DEPTH, frozenset({end}), 1 << 20)
        wanted = whole[: whole.index(end) + 1]
        assert decode(trunk, None, PROMPT, decoding).ids == wanted
        assert decode(trunk, draft, PROMPT, decoding).ids == wanted


@pytest.mark.parametrize("tiny", [tiny_mistral, tiny_qwen3_5])
def test_forgotten_rows_leave_nothing_behind(tiny: Build) -> None:
    """A window of six is passed; a delta net's state is put back."""
    trunk, _ = trunk_and_draft(tiny)
    ids = [3, 1, 4, 1, 0, 2, 2, 3, 4, 1, 1, 0]
    text = CachedTrunk(trunk)
    text.extend(ids[:4])
    text.extend([2, 2, 2, 2, 2])
    text.keep(4 + 1)
    assert text.length == 5
    ids[4] = 2
    rows_1TH = text.extend(ids[5:])
    wanted_1TH = trunk.hidden(torch.tensor([ids]))[:, 5:]
    # f32 products of other shapes: a few roundings of 2**-24 a layer.
    torch.testing.assert_close(rows_1TH, wanted_1TH, rtol=1e-4, atol=1e-4)


def test_a_bf16_decode_differs_in_ties_only() -> None:
    trunk, draft = trunk_and_draft(tiny_llama, torch.bfloat16)
    lower_products(draft)
    plain = decode(trunk, None, PROMPT, DECODING).ids
    drafted = decode(trunk, draft, PROMPT, DECODING).ids
    for place, (one, other) in enumerate(zip(plain, drafted, strict=True)):
        if one != other:
            gap = logit_gap(trunk, [*PROMPT, *plain[:place]], one, other)
            assert gap.logits < 0.05 * gap.spread
            break


def test_a_gap_is_of_the_next_token_s_logits() -> None:
    trunk, _ = trunk_and_draft(tiny_llama)
    logits_V = trunk.logits(trunk.hidden(torch.tensor([PROMPT]))[0, -1:])[0]
    found = logit_gap(trunk, PROMPT, 1, 3)
    assert found.logits == pytest.approx(float(logits_V[1] - logits_V[3]).__abs__())
    assert found.spread == pytest.approx(float(logits_V.std()))


def test_a_text_of_one_token_has_no_round() -> None:
    trunk, draft = trunk_and_draft(tiny_llama)
    found: Decoded = decode(trunk, draft, PROMPT, Decoding(1, DEPTH, frozenset(), 1 << 20))
    assert (len(found.ids), found.rounds) == (1, 0)
    assert found.tokens_a_round is None
    assert found.tokens_a_second is None
