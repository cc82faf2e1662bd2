"""A finished directory of the store, in the hands of a caller."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from store.manifest import Json, Manifest


@dataclass(frozen=True)
class Artifact:
    """One finished artifact; `path` is its folder, never to be written to."""

    stage: str
    key: str
    path: Path
    manifest: Manifest
    # How the process that asked for it would make it again; never written anywhere.
    remake: Callable[[], "Artifact"] | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """`"stage/key"`, as other artifacts refer to it."""
        return f"{self.stage}/{self.key}"

    @property
    def content_digest(self) -> str:
        """What stages that read this artifact are keyed by."""
        return self.manifest.content_digest

    @property
    def numbers(self) -> Json:
        """What its stage returned to be shown and read."""
        return self.manifest.numbers

    def __getstate__(self) -> dict[str, object]:
        """As another process gets it: how this one would make it again stays here."""
        return {**self.__dict__, "remake": None}
