"""The result record, last file of an artifact: written by Prefect, read here without it.

Its result says which manifest it closes, so that a changed manifest shows.
"""

import json
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue, ValidationError

from store.errors import ArtifactDamaged
from store.keys import checked_key, checked_stage
from store.manifest import RECORD, Key, StageName, Stored

NoWords: TypeAlias = Annotated[dict[str, JsonValue], Field(max_length=0)]


class Reference(Stored):
    """A stage's result as Prefect keeps it: which artifact, and its manifest's sha256."""

    stage: StageName
    key: Key
    manifest: str


class JsonSerializer(Stored):
    """How a result may be stored: Prefect's plain JSON.

    Prefect reads a record with what the record itself names: a pickle, or any library or
    function that can be imported. So every other is refused before Prefect sees it.
    """

    type: Literal["json"]
    jsonlib: Literal["json"] = "json"
    object_encoder: Literal["prefect.serializers.prefect_json_object_encoder"] | None = None
    object_decoder: Literal["prefect.serializers.prefect_json_object_decoder"] | None = None
    dumps_kwargs: NoWords = Field(default_factory=dict)
    loads_kwargs: NoWords = Field(default_factory=dict)


def record_name(stage: str, key: str) -> str:
    """The record's place below the store's root; also Prefect's cache key."""
    return f"{checked_stage(stage)}/{checked_key(key)}/{RECORD}"


def read_reference(record: Path) -> Reference | None:
    """The reference in a record file; None if there is no such file.

    Raises `ArtifactDamaged` for one that was cut short, is about another artifact, or names
    a serializer that could run code.
    """
    try:
        content = json.loads(record.read_bytes())
        JsonSerializer.model_validate(content["metadata"]["serializer"])
        reference = Reference.model_validate_json(content["result"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise ArtifactDamaged(record, "the record cannot be read") from error
    if (reference.stage, reference.key) != (record.parent.parent.name, record.parent.name):
        raise ArtifactDamaged(record, "the record is about another artifact")
    return reference
