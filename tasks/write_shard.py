"""write_shard: some prompts, each with the trunk's continuation of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from conf.base import Settings
from store.artifact import Artifact
from store.manifest import Manifest
from store.tables import write_table
from tasks.model_file import ModelPart
from tasks.placed_trunk import load_trunk
from tasks.progress import Bar
from tasks.prompts import PromptShard
from tasks.stage import Runtime, stage
from tasks.written import RECORDS, to_table

if TYPE_CHECKING:
    import torch

    from nets.trunk import Trunk


class ShardWriting(Settings):
    """How a shard's prompts go on; greedy has no seed."""

    length: int
    temperature: float
    seed: int | None
    batch: int
    dtype: Literal["bf16", "f32"]
    ends: tuple[int, ...]


@dataclass
class WritingTrunk:
    """The trunk of one text: loaded when the first missing shard asks for it, then kept."""

    part: ModelPart
    bar: Bar
    tokens: int = 0
    _model: "Trunk | None" = None

    @property
    def content_digest(self) -> str:
        """The trunk's identity."""
        return self.part.content_digest

    def model(self, settings: ShardWriting, runtime: Runtime) -> "Trunk":
        """The trunk in the compute type, on the device."""
        if self._model is None:
            self._model = load_trunk(self.part, settings.dtype, runtime)
        return self._model

    def wrote(self, tokens: int) -> None:
        """Counts tokens that were just written."""
        self.tokens += tokens
        self.bar.advance(tokens)

    def found(self, tokens: int) -> None:
        """Counts tokens that need no writing: prompts, and what is in the store."""
        self.tokens += tokens
        self.bar.skip(tokens)


def _shard_tokens(
    settings: ShardWriting,
    past: Manifest | None,
    *,
    trunk: WritingTrunk,
    prompts: PromptShard | Artifact,
) -> Mapping[str, object]:
    """As many as there can be; no end is known before it is written."""
    if isinstance(prompts, Artifact):
        given, texts = int(prompts.numbers["tokens"]), int(prompts.numbers["prompts"])
    else:
        given, texts = sum(map(len, prompts.prompts)), len(prompts.prompts)
    return {"records": texts, "tokens": given + texts * settings.length}


@stage("write_shard", version=1, expects=_shard_tokens, on_device=True)
def write_shard(
    out: Path,
    settings: ShardWriting,
    runtime: Runtime,
    *,
    trunk: WritingTrunk,
    prompts: PromptShard,
) -> Mapping[str, object]:
    """`records.arrow`: the ids of each prompt and its continuation, in their order."""
    model = trunk.model(settings, runtime)
    # Prompts of like length together: while the longest lasts, no shorter one waits.
    order = sorted(range(len(prompts.prompts)), key=lambda i: len(prompts.prompts[i]))
    records: dict[int, list[int]] = {}
    with runtime.stop.heeded():
        for start in range(0, len(order), settings.batch):
            chosen = order[start : start + settings.batch]
            texts = _continued(model, prompts, chosen, settings, trunk, runtime)
            records |= dict(zip(chosen, texts, strict=True))
    write_table(out / RECORDS, to_table([records[i] for i in range(len(order))]))
    return {"records": len(records), "tokens": sum(map(len, records.values()))}


def _continued(
    model: "Trunk",
    shard: PromptShard,
    chosen: Sequence[int],
    settings: ShardWriting,
    trunk: WritingTrunk,
    runtime: Runtime,
) -> list[list[int]]:
    from nets.generate import Writing, write_texts

    def on_tokens(count: int) -> None:
        runtime.stop.check("in a shard of the text, begun anew next time")
        trunk.wrote(count)

    return write_texts(
        model,
        [shard.prompts[i] for i in chosen],
        Writing(
            settings.length,
            settings.temperature,
            frozenset(settings.ends),
            runtime.head_budget_bytes,
        ),
        _draws(settings, [shard.first + i for i in chosen]),
        on_tokens,
    )


def _draws(settings: ShardWriting, numbers: Sequence[int]) -> "torch.Tensor | None":
    """Draws in [0, 1) of each text, f64 [B, length]: its own, whatever batch it is in."""
    if settings.seed is None:
        return None
    import torch

    rows = [
        np.random.default_rng([settings.seed, number]).random(settings.length)
        for number in numbers
    ]
    return torch.from_numpy(np.stack(rows))
