"""What a stage may be given, and what of it enters the key."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from pydantic import JsonValue

from store.artifact import Artifact
from store.errors import ArtifactError


class Digestible(Protocol):
    """Anything with a digest of what a stage would read from it."""

    @property
    def content_digest(self) -> str:
        """Changes when, and only when, the content does."""


Input: TypeAlias = "Digestible | Sequence[Input] | Mapping[str, Input] | None"


def digests_in(value: Input, where: str) -> JsonValue:
    """The content digests in an input, in its order: a mapping's order is content too.

    `where` names it in the error for a value that has no digest.
    """
    if value is None:
        return None
    digest = getattr(value, "content_digest", None)
    if isinstance(digest, str) and digest:
        return digest
    if isinstance(value, Mapping):
        return {
            "in_order": [[str(k), digests_in(v, f"{where}.{k}")] for k, v in value.items()]
        }
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [digests_in(item, f"{where}[{i}]") for i, item in enumerate(value)]
    raise ArtifactError(
        f"input {where} is a {type(value).__name__} without a content_digest; pass an "
        "artifact or a file that has one, and plain values in the settings"
    )


def with_artifacts(value: Input, change: Callable[[Artifact], Artifact]) -> Input:
    """The same input with every artifact in it replaced by `change` of it."""
    if isinstance(value, Artifact):
        return change(value)
    if isinstance(value, Mapping):
        return {name: with_artifacts(item, change) for name, item in value.items()}
    if isinstance(value, Sequence):
        return [with_artifacts(item, change) for item in value]
    return value
