"""What a round of decoding takes on this machine: plain steps, verifies, drafts, in turn.

The text is given, so every round goes the same way whatever the draft says.
Legend: T positions, H hidden; one text, so the batch is 1.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from nets.decode import Decoding, Drafter, best_tokens
from nets.decode_trunk import CachedTrunk
from nets.draft import Draft
from nets.trunk import Trunk

WARM_UP = 2  # rounds: first calls choose kernels, and the draft's first reads the prompt


@dataclass(frozen=True)
class RoundTimes:
    """Seconds of one round's parts: one plain step, one verify, one drafted token."""

    plain: float
    verify: float
    draft: float


def text_length(context: int, depth: int, rounds: int) -> int:
    """Tokens that `time_rounds` reads."""
    return context + (WARM_UP + rounds + 1) * depth + 1


@torch.no_grad()
def time_rounds(
    trunk: Trunk, draft: Draft, ids: Sequence[int], rounds: int, decoding: Decoding
) -> tuple[RoundTimes, ...]:
    """Rounds that keep all drafts but the last, behind the first ids, each beside steps.

    A round drafts `depth` tokens, reads them and the one before in one forward, and forgets
    the last row; the trunk alone reads the kept ones one by one. `ids` are of
    `text_length`.
    """
    depth, shared = decoding.depth, trunk.shared
    at = len(ids) - text_length(0, depth, rounds)
    alone, text = CachedTrunk(trunk), CachedTrunk(trunk)
    alone.extend(ids[:at])
    rows_1TH = text.extend(ids[:at])
    drafter, unread = Drafter(draft, decoding), ids[1 : at + 1]

    def read(by: CachedTrunk, tokens: Sequence[int]) -> torch.Tensor:
        found_1TH = by.extend(tokens)
        best_tokens(trunk.final_norm(found_1TH[0]), shared, decoding)
        return found_1TH

    found = []
    for _ in range(WARM_UP + rounds):
        # Wall clock: choosing a token waits for the device.
        begun = time.perf_counter()
        drafter.draft(unread, rows_1TH, depth)
        drafted = time.perf_counter()
        rows_1TH = read(text, ids[at : at + depth + 1])[:, :depth]
        text.keep(at + depth)
        verified = time.perf_counter()
        for token in ids[at : at + depth]:
            read(alone, [token])
        plain = (time.perf_counter() - verified) / depth
        times = RoundTimes(plain, verified - drafted, (drafted - begun) / depth)
        found.append(times)
        unread = ids[at + 1 : at + depth + 1]
        at += depth
    return tuple(found[WARM_UP:])
