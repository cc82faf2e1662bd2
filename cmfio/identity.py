"""What a model is, by content: sha256 of every part, made as its hash64 is checked."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from cmfio.errors import DamagedTensor
from cmfio.hash64 import Hash64
from cmfio.header import Arch, TensorEntry
from cmfio.json_text import Json, spell_sorted
from cmfio.layout import Progress
from cmfio.reader import Container
from cmfio.verify import check_sections

DRAFT_PREFIX = "model.mtp."
SKILL_PREFIX = "skill."


@dataclass(frozen=True)
class ModelDigests:
    """sha256 digests, hex. `tensors` and `sections` are of the stored bytes.

    `trunk`: what the trunk's forward reads (healing.md §5): no draft, skills, masks.
    `draft`: the `model.mtp.*` tensors and `arch.mtp`.
    `content`: the whole model, wherever it lies and however its file is laid out.
    """

    tensors: dict[str, str]
    sections: dict[str, str]
    trunk: str
    draft: str
    content: str

    @property
    def vocab(self) -> str:
        """The digest of the tokenizer section; "" when there is none."""
        return self.sections.get("vocab", "")

    def to_json(self) -> dict[str, Json]:
        """For remembering; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, remembered: Json) -> "ModelDigests":
        """What `to_json` gave; TypeError or KeyError if it is something else."""
        if not isinstance(remembered, dict):
            raise TypeError(f"digests are remembered as an object, not {type(remembered)}")
        return cls(
            tensors=_texts(remembered["tensors"]),
            sections=_texts(remembered["sections"]),
            trunk=str(remembered["trunk"]),
            draft=str(remembered["draft"]),
            content=str(remembered["content"]),
        )


def model_digests(container: Container, progress: Progress | None = None) -> ModelDigests:
    """Digests of an open model, all shards. `progress` hears (bytes done, bytes in all).

    DamagedTensor names the first section or tensor whose bytes don't have their recorded
    hash64.
    """
    check_sections(container)
    total = sum(entry.nbytes for entry in container.entries.values())
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    tensors = {
        name: _checked_sha256(container, name, advance) for name in container.entries
    }
    return _combined(container, tensors)


def _checked_sha256(container: Container, name: str, advance: Callable[[int], None]) -> str:
    sha, running = hashlib.sha256(), Hash64()
    for chunk in container.chunks(name):
        sha.update(chunk)
        running.update(chunk)
        advance(len(chunk))
    stored = container.entries[name].hash64
    if running.value() != stored:
        raise DamagedTensor(
            f"{container.path}: tensor {name!r} has hash {running.value():016x}, its "
            f"directory says {stored:016x}; the file is damaged, copy or convert it again"
        )
    return sha.hexdigest()


def _combined(container: Container, tensors: dict[str, str]) -> ModelDigests:
    found = {"masks": container.masks, "vocab": container.vocab, "index": container.index}
    sections = {
        name: hashlib.sha256(section).hexdigest()
        for name, section in found.items()
        if section is not None
    }
    entries = container.entries
    header = container.header.to_json()
    content: Json = [header, lines(tensors, entries), dict[str, Json](sections)]
    return combined(container.header.arch, entries, tensors, sections, content)


def combined(
    arch: Arch,
    entries: Mapping[str, TensorEntry],
    tensors: dict[str, str],
    sections: dict[str, str],
    content: Json,
) -> ModelDigests:
    """The digests of a model whose tensors have these; `content` is all that it holds."""
    said = arch.to_json()
    mtp = said.pop("mtp", None)
    draft = {name: sha for name, sha in tensors.items() if name.startswith(DRAFT_PREFIX)}
    apart = (DRAFT_PREFIX, SKILL_PREFIX)
    trunk = {name: sha for name, sha in tensors.items() if not name.startswith(apart)}
    return ModelDigests(
        tensors=tensors,
        sections=sections,
        trunk=digest([said, lines(trunk, entries)]),
        draft=digest([mtp, lines(draft, entries)]),
        content=digest(content),
    )


def lines(digests: Mapping[str, str], entries: Mapping[str, TensorEntry]) -> list[Json]:
    """A line a tensor, by name: its dtype, shape and digest."""
    return [
        [name, entries[name].dtype, list[Json](entries[name].shape), digests[name]]
        for name in sorted(digests)
    ]


def digest(value: Json) -> str:
    """sha256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(spell_sorted(value).encode("utf-8")).hexdigest()


def _texts(value: Json) -> dict[str, str]:
    if not isinstance(value, dict):
        raise TypeError(f"digests by name are remembered as an object, not {type(value)}")
    return {name: str(digest) for name, digest in value.items()}
