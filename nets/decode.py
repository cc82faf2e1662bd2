"""Greedy decoding, by the trunk alone and with a draft whose tokens the trunk verifies.

A round as runtimes have it (healing.md §1, §6 `exact`): the draft reads the trunk's rows
it has not seen, chains its tokens on its own outputs, the trunk reads all of them at once,
and what it would not have written is dropped from both caches.
Legend: T positions, H hidden, V vocabulary, R rows; one text, so the batch is 1.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from nets.decode_trunk import CachedTrunk, seen_behind
from nets.draft import Draft, KeyValues
from nets.head import topk_rows
from nets.trunk import Shared, Trunk


@dataclass(frozen=True)
class Decoding:
    """How far: `length` tokens, fewer where one of `ends` is written; drafts a round."""

    length: int
    depth: int
    ends: frozenset[int]
    budget_bytes: int


@dataclass(frozen=True)
class Decoded:
    """The tokens written behind a prompt, and what it took.

    The prompt's forward gives the first token, every round at least one more. Without a
    draft each round is a plain step. `prompt_seconds` is the trunk reading the prompt,
    `seconds` everything after, the draft's reading of it included.
    """

    ids: tuple[int, ...]
    rounds: int
    drafted: int
    kept: int
    prompt_seconds: float
    seconds: float

    @property
    def tokens_a_round(self) -> float | None:
        """None where the prompt's forward wrote all there is."""
        return (len(self.ids) - 1) / self.rounds if self.rounds else None

    @property
    def tokens_a_second(self) -> float | None:
        """Behind the first token, which costs a prompt and no round."""
        return (len(self.ids) - 1) / self.seconds if self.rounds else None


@dataclass(frozen=True)
class Gap:
    """What two tokens' logits differ by in a row, and the spread of all of that row."""

    logits: float
    spread: float


@torch.no_grad()
def decode(
    trunk: Trunk,
    draft: Draft | None,
    prompt: Sequence[int],
    decoding: Decoding,
    told: Callable[[int], None] = lambda _tokens: None,
) -> Decoded:
    """The trunk's greedy continuation of a prompt of one token or more.

    `told` hears after each round how many tokens it wrote.
    The draft changes the time it takes, and the text only where a forward of several rows
    rounds otherwise than one of a single row.
    """
    begun = time.perf_counter()
    text, shared = CachedTrunk(trunk), trunk.shared
    rows_1TH = text.extend(prompt)
    written = best_tokens(trunk.final_norm(rows_1TH[0, -1:]), shared, decoding)
    read = time.perf_counter()
    drafter = None if draft is None else Drafter(draft, decoding)
    unread = [*prompt[1:], *written]
    rounds = drafted = kept = 0
    while len(written) < decoding.length and written[-1] not in decoding.ends:
        depth = min(decoding.depth, decoding.length - len(written) - 1)
        drafts = [] if drafter is None else drafter.draft(unread, rows_1TH, depth)
        before = text.length
        rows_1TH = text.extend([written[-1], *drafts])
        own = best_tokens(trunk.final_norm(rows_1TH[0]), shared, decoding)
        held = _held(drafts, own)
        unread = own[: held + 1]
        rows_1TH = rows_1TH[:, : held + 1]
        text.keep(before + held + 1)
        rounds, drafted, kept = rounds + 1, drafted + len(drafts), kept + held
        new = _until_end(unread, decoding.ends)
        written += new
        told(len(new))
    ended = time.perf_counter()
    return Decoded(tuple(written), rounds, drafted, kept, read - begun, ended - read)


def lower_products(draft: Draft) -> None:
    """The weights of a draft's products in bf16, for a bf16 trunk's decode.

    Autocast would round the f32 masters anew at every step; the values are the same.
    """
    for module in draft.modules():
        if isinstance(module, nn.Linear):
            module.to(torch.bfloat16)


@torch.no_grad()
def logit_gap(trunk: Trunk, ids: Sequence[int], one: int, other: int) -> Gap:
    """How far apart two tokens are as the next of a text, in one forward over all of it."""
    device = trunk.shared.embed_VH.device
    last_1H = trunk.hidden(torch.tensor([list(ids)], device=device))[0, -1:]
    head_VH = trunk.shared.head_VH.float()
    logits_V = nn.functional.linear(trunk.final_norm(last_1H).float(), head_VH)[0]
    return Gap(float((logits_V[one] - logits_V[other]).abs()), float(logits_V.std()))


@dataclass
class Drafter:
    """A draft and its keys of the rows it was fed from the trunk: `place` of them."""

    draft_net: Draft
    decoding: Decoding
    place: int = 0
    cache: KeyValues = field(default_factory=KeyValues)

    def draft(self, tokens: Sequence[int], rows_1TH: Tensor, depth: int) -> list[int]:
        """The next `depth` tokens, given the trunk's new rows and the token behind each."""
        if not depth:  # the last token of all: nothing will be drafted any more
            return []
        net, shared = self.draft_net, self.draft_net.shared
        low = torch.autocast(rows_1TH.device.type, torch.bfloat16, enabled=shared.is_low)
        found: list[int] = []
        with low:
            carried_1TH, fed = net.trunk_rows(rows_1TH), list(tokens)
            for step in range(1, depth + 1):
                start = self.place if step == 1 else self.place + len(tokens) + step - 2
                out_1TH = self._feed(fed, carried_1TH, start)
                normed_1H = net.read_out(out_1TH[0, -1:])
                fed = best_tokens(normed_1H, shared, self.decoding)
                found += fed
                carried_1TH = net.chain_rows(out_1TH[:, -1:])
        self._forget_chain()
        self.place += len(tokens)
        return found

    def _feed(self, tokens: Sequence[int], hidden_1TH: Tensor, start: int) -> Tensor:
        net, device = self.draft_net, hidden_1TH.device
        token_1T = torch.tensor([list(tokens)], device=device)
        position_1T = torch.arange(start, start + len(tokens), device=device)[None]
        mask = seen_behind(start, len(tokens), None, device)
        return net.block(net.fuse(token_1T, hidden_1TH), position_1T, mask, self.cache)

    def _forget_chain(self) -> None:
        """Keep the keys of the trunk's rows; the chain's own are the last `depth - 1`."""
        chained = self.decoding.depth - 1
        for kept in (self.cache.keys, self.cache.values):
            from_trunk = 1 if self.place == 0 else 2
            assert len(kept) <= from_trunk + chained
            kept[:] = [torch.cat(kept[:from_trunk], dim=2)]


def best_tokens(normed_RH: Tensor, shared: Shared, decoding: Decoding) -> list[int]:
    """The most probable token of each row, by f32 logits."""
    found = topk_rows(normed_RH, shared.head_VH, 1, decoding.budget_bytes)
    best: list[int] = found.id_RK[:, 0].tolist()
    return best


def _held(drafts: Sequence[int], own: Sequence[int]) -> int:
    """How many drafted tokens, from the first, are the trunk's own choice."""
    pairs = zip(drafts, own[: len(drafts)], strict=True)
    misses = [place for place, (one, other) in enumerate(pairs) if one != other]
    return misses[0] if misses else len(drafts)


def _until_end(tokens: Sequence[int], ends: frozenset[int]) -> list[int]:
    """Up to the first end token, which is kept."""
    at = next((i for i, token in enumerate(tokens) if token in ends), len(tokens) - 1)
    return list(tokens[: at + 1])
