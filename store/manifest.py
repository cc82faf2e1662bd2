"""What an artifact says about itself: recipe, files, arrays, parts, numbers, origin."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict

from store.errors import BadName
from store.keys import (
    KEY_DIGITS,
    checked_key,
    checked_relative,
    checked_stage,
    digest_of,
    split_name,
)

MANIFEST = "manifest.json"
RECORD = "record.json"
WORK = "work"  # resume material; gone when the stage completes

Json: TypeAlias = dict[str, Any]  # JSON whose shape the stage knows that wrote it


def _names(check: Callable[[str], object]) -> AfterValidator:
    """A pydantic validator of a name check: pydantic wants ValueError to report it."""

    def validate(name: str) -> str:
        try:
            check(name)
        except BadName as error:
            raise ValueError(str(error)) from error
        return name

    return AfterValidator(validate)


StageName = Annotated[str, _names(checked_stage)]
Key = Annotated[str, _names(checked_key)]
PartName = Annotated[str, _names(split_name)]
RelativePath = Annotated[str, _names(checked_relative)]


class Stored(BaseModel):
    """Base of what the store reads back: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FileRecord(Stored):
    """One file as it was when the artifact was finished."""

    size: int
    mtime_ns: int
    sha256: str


class ArrayInfo(Stored):
    """A Zarr array's outline, for readers that don't open it."""

    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...]


class Recipe(Stored):
    """What the key is made of: the stage, its settings, its inputs' content digests."""

    stage: StageName
    version: int
    settings: Json
    inputs: Json


class Origin(Stored):
    """Where, with what and when an artifact was made; in no key and no digest."""

    machine: str
    versions: dict[str, str]
    started: str
    seconds: float
    resumed: bool


class Manifest(Origin, Recipe):
    """The whole `manifest.json`.

    `parts` names artifacts as "stage/key", in the stage's order and as often as it wants;
    `part_digests` is the content digest each had then.
    """

    key: Key
    content: str
    files: dict[RelativePath, FileRecord]
    arrays: dict[str, ArrayInfo]
    parts: tuple[PartName, ...]
    part_digests: tuple[str, ...]
    numbers: Json
    notes: Json

    @cached_property
    def content_digest(self) -> str:
        """All that a later stage may read: own files, parts, numbers; not `notes`."""
        if not self.parts and not self.numbers:
            return self.content
        return digest_of([self.content, self.part_digests, self.numbers])


def key_of(recipe: Recipe) -> str:
    """The first 32 hex digits of the recipe's sha256."""
    return digest_of(recipe.model_dump(mode="json"))[:KEY_DIGITS]


def content_of(files: Mapping[str, FileRecord]) -> str:
    """sha256 over the sorted (relative path, file sha256)."""
    return digest_of(sorted([name, record.sha256] for name, record in files.items()))
