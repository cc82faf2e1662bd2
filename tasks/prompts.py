"""take_prompts: the first tokens of a data set's records, for a trunk to go on from."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from conf.base import Settings
from conf.schema import WriteConfig, WriteSpec
from store.artifact import Artifact
from store.digests import FileDigests
from store.keys import digest_of
from store.manifest import Manifest
from store.tables import read_table, write_table
from tasks.model_file import ModelPart
from tasks.set_records import read_records
from tasks.sources import DataSet, open_set
from tasks.stage import Runtime, stage
from tasks.written import to_table

PROMPTS = "prompts.arrow"

Prompt = tuple[int, ...]


@dataclass(frozen=True)
class TextToWrite:
    """A data set that a trunk has yet to write; its prompts' digests are taken."""

    name: str
    prompts: DataSet
    config: WriteConfig

    @property
    def tokens(self) -> int:
        """The most tokens of it that are packed."""
        return self.config.tokens


def open_text(spec: WriteSpec, digests: FileDigests) -> TextToWrite:
    """The text a spec asks for; InputError if its prompts can't be read."""
    prompts = open_set(spec.write.prompts, digests)
    return TextToWrite(spec.name or f"own-{prompts.name}", prompts, spec.write)


class PromptSettings(Settings):
    """The first `first` tokens of each record (None: all) of `tokens` tokens in all.

    Text files are cut into records of at most `limit` tokens.
    """

    first: int | None
    tokens: int
    limit: int


def _expected_prompts(
    settings: PromptSettings, past: Manifest | None, **_: object
) -> Mapping[str, object]:
    records = max(1, settings.tokens // settings.limit)
    return {"prompts": records, "tokens": records * (settings.first or settings.limit)}


@stage("take_prompts", version=2, expects=_expected_prompts)
def take_prompts(
    out: Path,
    settings: PromptSettings,
    runtime: Runtime,
    *,
    prompts: DataSet,
    tokenizer: ModelPart | None,
) -> Mapping[str, object]:
    """`prompts.arrow`: token ids, in the set's shuffled order."""
    records = read_records(prompts, settings.tokens, settings.limit, tokenizer)
    taken = [record[: settings.first] for record in records]
    write_table(out / PROMPTS, to_table(taken))
    return {"prompts": len(taken), "tokens": sum(map(len, taken))}


def read_prompts(artifact: Artifact) -> list[Prompt]:
    """The prompts `take_prompts` took."""
    return [tuple(ids) for ids in read_table(artifact.path / PROMPTS)["ids"].to_pylist()]


@dataclass(frozen=True)
class PromptShard:
    """Some prompts; `first` numbers the first of them among all, for its draws."""

    first: int
    prompts: tuple[Prompt, ...]

    @cached_property
    def content_digest(self) -> str:
        """sha256 of the number and the prompts."""
        return digest_of({"first": self.first, "prompts": [*map(list, self.prompts)]})
