"""A draft tried out: one prompt decoded by the trunk alone and with it, and compared.

Nothing is cached: it is a measurement of this machine, now.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cmfio.tokenizer import load_tokenizer
from conf.base import Wiring
from tasks.drafts import load_draft
from tasks.errors import InputError
from tasks.model_file import ModelFile, open_part, vocab_bytes
from tasks.placed_trunk import load_trunk
from tasks.stage import Runtime

if TYPE_CHECKING:
    from nets.decode import Decoded, Gap
    from nets.draft import Draft
    from nets.trunk import Trunk

# Logits of a bf16 trunk are off by about 1 % of their spread, those of an f32 one by about
# 1e-5 of it: a gap above a few times that no rounding explains.
TIE = {"bf16": 0.05, "f32": 1e-4}
QUICK_S = 2.0  # short decodes are timed again: the first is slower than those after it
MOST_TRIES = 3
WARM_UP = 4  # tokens decoded before anything is timed: first calls choose kernels


@dataclass(frozen=True)
class Trying:
    """How many tokens, how many drafts a round, how the draft is wired, what it runs in."""

    tokens: int
    depth: int
    wiring: Wiring
    dtype: Literal["bf16", "f32"]


@dataclass(frozen=True)
class Difference:
    """The first place where the two texts differ, and whether rounding explains it."""

    place: int
    plain: int
    drafted: int
    gap: "Gap"
    is_tie: bool


@dataclass(frozen=True)
class Trial:
    """Both decodes, each the quickest of `tries`; where texts agree no `difference`."""

    prompt_tokens: int
    text: str
    plain: "Decoded"
    drafted: "Decoded"
    difference: Difference | None
    tries: int = 1

    @property
    def speedup(self) -> float | None:
        """Tokens a second with the draft against without; None with nothing to time."""
        one, other = self.plain.tokens_a_second, self.drafted.tokens_a_second
        return None if one is None or other is None else other / one


def try_draft(model: ModelFile, prompt: str, trying: Trying, runtime: Runtime) -> Trial:
    """Decodes the prompt both ways with the model's own draft and tokenizer.

    InputError for a model without either, a prompt that is empty or no text, more tokens
    than the model's context takes, or a trunk too large for the memory.
    """
    with runtime.progress.task("loading torch"):
        from nets.decode import Decoding, decode, lower_products

    ids = _prompt_ids(model, prompt, trying.tokens)
    trunk = load_trunk(model.trunk, trying.dtype, runtime)
    draft = load_draft(model.trunk, model.draft, None, trying.wiring, trying.dtype, runtime)
    if trying.dtype == "bf16":
        lower_products(draft)

    def decoding(tokens: int) -> "Decoding":
        ends, budget = frozenset(model.ends), runtime.head_budget_bytes
        return Decoding(tokens, trying.depth, ends, budget)

    with runtime.progress.task("warming up"):
        for one in (None, draft):
            decode(trunk, one, ids, decoding(WARM_UP))

    def timed(title: str, one: "Draft | None") -> "Decoded":
        with runtime.progress.task(title, total=trying.tokens, unit="tokens") as bar:
            bar.advance(1)  # the prompt's own forward writes the first
            return decode(trunk, one, ids, decoding(trying.tokens), bar.advance)

    tries: list[tuple[Decoded, Decoded]] = []
    while len(tries) < MOST_TRIES and sum(_seconds(pair) for pair in tries) < QUICK_S:
        plain = timed("decoding with the trunk alone", None)
        drafted = timed(f"decoding with {trying.depth} drafts a round", draft)
        tries.append((plain, drafted))
    plain, drafted = (
        min(side, key=lambda one: one.seconds) for side in zip(*tries, strict=True)
    )
    text = load_tokenizer(_vocab(model), model.path).decode(list(plain.ids))
    difference = _difference(trunk, ids, plain.ids, drafted.ids, trying)
    return Trial(len(ids), text, plain, drafted, difference, len(tries))


def _seconds(pair: "tuple[Decoded, Decoded]") -> float:
    return pair[0].seconds + pair[1].seconds


def _vocab(model: ModelFile) -> bytes:
    if model.vocab is None:
        raise InputError(
            f"{model.path}: carries no tokenizer, so a prompt can't be turned into tokens; "
            "put the model's tokenizer.json into the file"
        )
    return vocab_bytes(model.vocab)


def _prompt_ids(model: ModelFile, prompt: str, tokens: int) -> list[int]:
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise InputError("the prompt isn't UTF-8 text; give it as such") from error
    encoder = load_tokenizer(_vocab(model), model.path)
    ids: list[int] = encoder.encode(prompt).ids
    if not ids:
        raise InputError("the prompt holds no token; give some text to go on from")
    with open_part(model.trunk) as weights:
        arch = weights.header.arch
    vocab, context = arch.vocab_size, arch.max_position_embeddings
    if max(ids) >= vocab:
        raise InputError(
            f"the prompt's tokens go up to {max(ids):,}, {model.path} has ids below "
            f"{vocab:,}: its tokenizer is another model's"
        )
    if len(ids) + tokens > context:
        raise InputError(
            f"{model.path}: its context is {context:,} tokens, the prompt has "
            f"{len(ids):,}; ask for at most {max(context - len(ids), 0):,} --tokens"
        )
    return ids


def _difference(
    trunk: "Trunk",
    prompt: Sequence[int],
    plain: Sequence[int],
    drafted: Sequence[int],
    trying: Trying,
) -> Difference | None:
    """Where the texts part; behind that place they are two texts, so it is the only one."""
    from nets.decode import logit_gap

    pairs = enumerate(zip(plain, drafted, strict=False))
    parted = next(((i, a, b) for i, (a, b) in pairs if a != b), None)
    if parted is None:
        return None
    place, one, other = parted
    gap = logit_gap(trunk, [*prompt, *plain[:place]], one, other)
    is_tie = gap.logits <= TIE[trying.dtype] * gap.spread
    return Difference(place, one, other, gap, is_tie)
