"""write_text: text the trunk writes itself, a data set like any other once written.

Prompts are the first tokens of another data set's records. One cached task a shard of
prompts, then a join that refers to them; a shard's key is what decides its tokens: trunk,
prompts, how they go on.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from conf.schema import WriteConfig
from store.artifact import Artifact
from store.manifest import Manifest
from tasks.errors import InputError
from tasks.model_file import ModelFile, ModelPart, open_part
from tasks.planning import is_pending
from tasks.prompts import (
    Prompt,
    PromptSettings,
    PromptShard,
    TextToWrite,
    read_prompts,
    take_prompts,
)
from tasks.sources import kind_of
from tasks.stage import Runtime, StageResult, stage
from tasks.write_shard import ShardWriting, WritingTrunk, write_shard

BATCHES_A_SHARD = 4


class WritingSettings(ShardWriting):
    """A whole text: how it is written, until there are so many tokens."""

    tokens: int


def _expected_text(
    settings: WritingSettings, past: Manifest | None, *, shards: Sequence[Artifact]
) -> Mapping[str, object]:
    return _counted(shards)


@stage("write_text", version=1, expects=_expected_text)
def join_text(
    out: Path, settings: WritingSettings, runtime: Runtime, *, shards: Sequence[Artifact]
) -> StageResult:
    """The text as one artifact that refers to its shards; numbers: records, tokens."""
    return StageResult(numbers=_counted(shards), parts=list(shards))


def _counted(shards: Sequence[Artifact]) -> dict[str, object]:
    return {
        name: sum(int(shard.numbers[name]) for shard in shards)
        for name in ("records", "tokens")
    }


def write_text(
    text: TextToWrite,
    model: ModelFile,
    dtype: Literal["bf16", "f32"],
    runtime: Runtime,
    label: str = "",
) -> Artifact:
    """The text as a trunk writes it: shard after shard until there are enough tokens.

    Each shard is cached. InputError for prompts the trunk has no embedding for.
    """
    config = text.config
    prompts = take_prompts(
        PromptSettings(
            first=config.prompt_tokens,
            tokens=text.prompts.tokens,
            limit=config.length + (config.prompt_tokens or 0),
        ),
        runtime,
        prompts=text.prompts,
        tokenizer=model.vocab if kind_of(text.prompts) == "text" else None,
        label=text.name,
    )
    settings = _shard_settings(config, model, dtype)
    said = f"writing {text.name} {label}".rstrip()
    with runtime.progress.task(said, total=config.tokens, unit="tokens") as bar:
        trunk = WritingTrunk(model.trunk, bar)
        if is_pending(prompts) or is_pending(model.trunk):
            every = write_shard(settings, runtime, trunk=trunk, prompts=prompts)
            shards = [every]
        else:
            shards = list(_written_shards(prompts, trunk, settings, config.tokens, runtime))
    whole = WritingSettings(**settings.model_dump(), tokens=config.tokens)
    joined = join_text(whole, runtime, shards=shards, label=f"{text.name} {label}".strip())
    _say_short(text, joined, runtime)
    return joined


def _shard_settings(
    config: WriteConfig, model: ModelFile, dtype: Literal["bf16", "f32"]
) -> ShardWriting:
    return ShardWriting(
        length=config.length,
        temperature=config.temperature,
        seed=config.seed if config.temperature else None,
        batch=config.batch,
        dtype=dtype,
        ends=model.ends,
    )


def _written_shards(
    prompts: Artifact,
    trunk: WritingTrunk,
    settings: ShardWriting,
    tokens: int,
    runtime: Runtime,
) -> Iterator[Artifact]:
    """Shards until they hold so many tokens, or no prompt is left."""
    waiting = read_prompts(prompts)
    _refuse_foreign_prompts(waiting, trunk.part)
    done = taken = 0
    while done < tokens and taken < len(waiting):
        chosen = tuple(_next_prompts(waiting[taken:], settings, tokens - done))
        # Greedy text has no draws, so it does not matter which of all prompts they are.
        first = 0 if settings.seed is None else taken
        shard = write_shard(
            settings, runtime, trunk=trunk, prompts=PromptShard(first, chosen)
        )
        yield shard
        taken += len(chosen)
        done += int(shard.numbers["tokens"])
        trunk.found(done - trunk.tokens)


def _next_prompts(
    waiting: Sequence[Prompt], settings: ShardWriting, left: int
) -> Iterator[Prompt]:
    """A few batches, but no more than are needed for `left` tokens if none ends early."""
    expected = 0
    for prompt in waiting[: BATCHES_A_SHARD * settings.batch]:
        if expected >= left:
            return
        yield prompt
        expected += len(prompt) + settings.length


def _refuse_foreign_prompts(prompts: Sequence[Prompt], trunk: ModelPart) -> None:
    with open_part(trunk) as container:
        vocab = container.header.arch.vocab_size
    highest = max((max(prompt) for prompt in prompts), default=0)
    if highest >= vocab:
        raise InputError(
            f"prompts: hold the token id {highest:,}, {trunk.path} has ids below "
            f"{vocab:,}; they were tokenised for another model, give text or this one's ids"
        )


def _say_short(text: TextToWrite, written: Artifact, runtime: Runtime) -> None:
    """Says so if the prompts ran out first."""
    tokens = int(written.numbers["tokens"])
    if tokens < text.tokens and not is_pending(written):
        runtime.progress.say(
            f"{text.name}: all {written.numbers['records']} prompts gave {tokens:,} of "
            f"{text.tokens:,} tokens; for more, give more prompts or a greater length"
        )
