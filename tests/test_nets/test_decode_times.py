"""A round's times by a clock that only the trunk and the draft move."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from nets import decode_times
from nets.decode import Decoding, Drafter
from nets.decode_times import WARM_UP, RoundTimes, text_length, time_rounds
from nets.decode_trunk import CachedTrunk
from nets.draft import build_draft
from nets.trunk import build_trunk
from tests.builders import TinySpec, tiny_qwen3

torch.set_num_threads(1)

CONTEXT, DEPTH, ROUNDS = 6, 3, 2
A_FORWARD, A_ROW, A_FEED = 10.0, 1.0, 3.0


def test_a_round_takes_what_its_forwards_take(monkeypatch: pytest.MonkeyPatch) -> None:
    now, lengths = 0.0, list[int]()
    extend, feed = CachedTrunk.extend, Drafter._feed

    def slow_extend(self: CachedTrunk, ids: list[int]) -> Tensor:
        nonlocal now
        now += A_FORWARD + A_ROW * len(ids)
        found = extend(self, ids)
        lengths.append(self.length)
        return found

    def slow_feed(
        self: Drafter, tokens: list[int], hidden_1TH: Tensor, start: int
    ) -> Tensor:
        nonlocal now
        now += A_FEED
        assert len(tokens) == hidden_1TH.shape[1]
        return feed(self, tokens, hidden_1TH, start)

    monkeypatch.setattr(CachedTrunk, "extend", slow_extend)
    monkeypatch.setattr(Drafter, "_feed", slow_feed)
    clock = SimpleNamespace(perf_counter=lambda: now)
    monkeypatch.setattr(decode_times, "time", clock)
    model = tiny_qwen3(TinySpec(vocab=5, seed=2))
    trunk = build_trunk(*model, device="cpu", dtype=torch.float32)
    draft = build_draft(*model, trunk.shared)
    length = text_length(CONTEXT, DEPTH, ROUNDS)
    ids = [token % 5 for token in range(length)]
    decoding = Decoding(length, DEPTH, frozenset(), 1 << 20)
    found = time_rounds(trunk, draft, ids, ROUNDS, decoding)
    # A verify reads depth + 1 rows at once, a plain step one; a draft is one feed each.
    assert found == (RoundTimes(plain=11.0, verify=14.0, draft=3.0),) * ROUNDS
    # Both texts stand at the same place behind every round: one draft was not kept.
    rounds = [lengths[2 + 4 * i : 6 + 4 * i] for i in range(WARM_UP + ROUNDS)]
    for i, (verified, *plain) in enumerate(rounds):
        before = CONTEXT + DEPTH * i
        assert verified == before + DEPTH + 1
        assert plain == [before + 1, before + 2, before + 3]
