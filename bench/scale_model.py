"""What a heal of a large trunk costs, from its geometry and a site's rates.

Work is counted in flops and bytes; what a site does a second (`Rates`) was measured on a
smaller model or is taken from the plan on paper. Axes: T positions, H hidden, V vocabulary.
"""

import math
from dataclasses import dataclass
from functools import cache

from pydantic import Field

from bench.scale_pass import Link, PassTimes, PassWork, simulate
from conf.base import Settings

BF16_BYTES = 2
OUTPUT_BYTES = 0.5625  # a weight as q4_tiled
TOPK_BYTES = 4 + 4  # an id and its probability, before compression
HELD_OUT = 0.1
MEASURES = 2  # stale and healed; each codec is measured once more


@dataclass(frozen=True)
class TrunkSize:
    """A dense trunk by its widths, embedding and head apart."""

    hidden: int
    layers: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int

    @property
    def layer_weights(self) -> int:
        """Weights of one layer's matrices."""
        attention = 2 * self.heads * self.head_dim + 2 * self.kv_heads * self.head_dim
        return self.hidden * (attention + 3 * self.ffn)

    @property
    def weights(self) -> int:
        """Weights of layers, embedding and head."""
        return self.layers * self.layer_weights + 2 * self.vocab * self.hidden

    @property
    def draft_weights(self) -> int:
        """Weights of a draft's projection and block."""
        return 2 * self.hidden**2 + self.layer_weights

    @property
    def head_flops(self) -> float:
        """Flops of a row through the head."""
        return 2.0 * self.vocab * self.hidden

    def token_flops(self, window: int) -> float:
        """Flops of the trunk pass for a token, causal attention and head included."""
        products = 2.0 * self.layers * self.layer_weights
        return products + self.attention_flops(window) + self.head_flops

    def attention_flops(self, window: int) -> float:
        """The part of them that is rows times rows, by the mean of the rows seen."""
        seen = (window + 1) / 2
        return 4.0 * seen * self.heads * self.head_dim * self.layers

    def row_bytes(self, topk: int) -> int:
        """Bytes that a token's row takes in the store."""
        return self.hidden * BF16_BYTES + topk * TOPK_BYTES + 4

    def step_flops(self) -> float:
        """Flops of a row of a chain step in training; the head is frozen."""
        return 6.0 * self.draft_weights + 2 * self.head_flops

    def read_flops(self) -> float:
        """Flops of a row of a chain step in a measure."""
        return 2.0 * self.draft_weights + self.head_flops


# 14B: a body of 11.5 B, embedding and head of 1.27 B each.
TRUNKS = {
    "14B": TrunkSize(5120, 34, 17_408, 24, 4, 256, 248_320),
    "70B": TrunkSize(8192, 80, 28_672, 64, 8, 128, 128_256),
}


class Rates(Settings):
    """What a worker and the site do a second; bytes, flops, tokens, weights, and seconds.

    `each` is one worker's own limit, `shared` what all of them get together.
    """

    flops: float = Field(gt=0)  # of a trunk pass, as reached
    train_flops: float = Field(gt=0)  # of a draft's step, as reached
    model_each: float = Field(gt=0)
    model_shared: float = Field(gt=0)
    store_each: float = Field(gt=0)
    store_shared: float = Field(gt=0)
    hash_bytes: float = Field(gt=0)
    pack_tokens: float = Field(gt=0)
    encode_weights: float = Field(gt=0)
    cards_link: float = Field(gt=0)  # between the cards that train together
    record_s: float = Field(ge=0)
    dispatch_s: float = Field(ge=0)


class Measured(Settings):
    """What was seen on a small model: a shard, a load, a store; seconds and their work."""

    shard_s: float = Field(gt=0)
    shard_flops: float = Field(gt=0)
    step_s: float = Field(gt=0)
    step_flops: float = Field(gt=0)
    load_s: float = Field(gt=0)
    load_bytes: float = Field(gt=0)
    write_s: float = Field(gt=0)
    write_bytes: float = Field(gt=0)
    hash_bytes: float = Field(gt=0)
    pack_tokens: float = Field(gt=0)
    encode_weights: float = Field(gt=0)
    record_s: float = Field(ge=0)
    dispatch_s: float = Field(ge=0)

    def rates(self) -> Rates:
        """Of a site made of machines like this one, with one disk for all of them."""
        load, write = self.load_bytes / self.load_s, self.write_bytes / self.write_s
        return Rates(
            flops=self.shard_flops / self.shard_s,
            train_flops=self.step_flops / self.step_s,
            model_each=load,
            model_shared=load,
            store_each=write,
            store_shared=write,
            hash_bytes=self.hash_bytes,
            pack_tokens=self.pack_tokens,
            encode_weights=self.encode_weights,
            cards_link=write,
            record_s=self.record_s,
            dispatch_s=self.dispatch_s,
        )


class Heal(Settings):
    """What is healed: so many tokens, cut into shards as `trunk.shard_windows` says."""

    tokens: int = Field(gt=0)
    window: int = 2048
    shard_windows: int = 16
    topk: int = 64
    depth: int = 3
    batch: int = 2
    codecs: int = 2
    train_cards: int = Field(default=1, ge=1)

    @property
    def shards(self) -> int:
        """Shards of the pass."""
        return math.ceil(self.tokens / (self.window * self.shard_windows))


@dataclass(frozen=True)
class HealTimes:
    """Seconds of a heal by what they are spent on; the pass's are the mean worker's."""

    parts: dict[str, float]
    trunk_pass: PassTimes

    @property
    def seconds(self) -> float:
        """All of it."""
        return sum(self.parts.values())

    @property
    def pass_parts(self) -> tuple[str, ...]:
        """The names of those that belong to the trunk pass."""
        return (LOAD, COMPUTE, STORE, RECORDS, TAIL)

    @property
    def largest(self) -> str:
        """What most of the time is spent on."""
        return max(self.parts, key=self.parts.__getitem__)


# How the table names what a heal spends its time on.
DIGEST, PACK, LOAD, COMPUTE, STORE, RECORDS, TAIL, CHECK, TRAIN, MEASURE, CODECS = (
    "digest of the model file",
    "packing",
    "loading the trunk",
    "trunk pass",
    "writing rows to the store",
    "locks and records",
    "too few shards",
    "digest of the rows",
    "training",
    "measuring",
    "rewriting codecs",
)


def pass_work(size: TrunkSize, heal: Heal, rates: Rates) -> PassWork:
    """The trunk pass of a heal; a shard is hashed by the worker that wrote it."""
    tokens = heal.tokens / heal.shards
    shard_bytes = tokens * size.row_bytes(heal.topk)
    return PassWork(
        shards=heal.shards,
        compute_s=tokens * size.token_flops(heal.window) / rates.flops
        + shard_bytes / rates.hash_bytes,
        shard_bytes=shard_bytes,
        load_bytes=size.weights * BF16_BYTES,
        record_s=rates.record_s,
        dispatch_s=rates.dispatch_s,
        model=Link(rates.model_shared, rates.model_each),
        store=Link(rates.store_shared, rates.store_each),
    )


def heal_times(size: TrunkSize, heal: Heal, rates: Rates, workers: int) -> HealTimes:
    """A first heal, nothing of it cached, with its trunk pass on so many workers."""
    passed = _simulated(pass_work(size, heal, rates), workers)
    row_bytes = heal.tokens * size.row_bytes(heal.topk)
    rounds = math.ceil(heal.codecs / workers)  # codecs do not wait for each other
    measure_s = _measure_s(size, heal, rates)
    rewrite_s = _rewrite_s(size, rates)
    parts = {
        DIGEST: size.weights * BF16_BYTES / rates.hash_bytes,
        PACK: heal.tokens / rates.pack_tokens,
        LOAD: passed.load,
        COMPUTE: passed.compute,
        STORE: passed.store,
        RECORDS: passed.record + passed.waiting,
        TAIL: passed.idle,
        CHECK: row_bytes / rates.hash_bytes,
        TRAIN: _train_s(size, heal, rates),
        MEASURE: MEASURES * measure_s,
        CODECS: rounds * (rewrite_s + measure_s),
    }
    return HealTimes(parts, passed)


@cache
def _simulated(work: PassWork, workers: int) -> PassTimes:
    """Heals that differ elsewhere have the same pass."""
    return simulate(work, workers)


def _train_s(size: TrunkSize, heal: Heal, rates: Rates) -> float:
    """An epoch on rows read from the store; gradients summed over the cards every step."""
    rows = heal.tokens * (1 - HELD_OUT)
    compute = rows * heal.depth * size.step_flops() / rates.train_flops
    steps = rows / (heal.window * heal.batch)
    cards = heal.train_cards
    summed_bytes = 2 * (cards - 1) / cards * size.draft_weights * 4
    reading = rows * size.row_bytes(heal.topk) / min(rates.store_each, rates.store_shared)
    return (compute + reading) / cards + steps * summed_bytes / rates.cards_link


def _measure_s(size: TrunkSize, heal: Heal, rates: Rates) -> float:
    rows = heal.tokens * HELD_OUT
    reading = rows * size.row_bytes(heal.topk) / min(rates.store_each, rates.store_shared)
    return rows * heal.depth * size.read_flops() / rates.train_flops + reading


def _rewrite_s(size: TrunkSize, rates: Rates) -> float:
    """Read, encode, write, hash."""
    reading = size.weights * BF16_BYTES / rates.model_each
    written_bytes = size.weights * OUTPUT_BYTES
    writing = written_bytes / rates.store_each + written_bytes / rates.hash_bytes
    return reading + size.weights / rates.encode_weights + writing
