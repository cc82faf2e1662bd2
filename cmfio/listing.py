"""What `cmf info` and `cmf dump` show: a summary of a container, and its parts as bytes."""

import io
from collections import Counter
from dataclasses import asdict, dataclass

import numpy as np

from cmfio.codecs.words import WORDS
from cmfio.errors import CmfError
from cmfio.header import dump_header
from cmfio.identity import DRAFT_PREFIX
from cmfio.json_text import Json
from cmfio.reader import Container

SECTIONS = ("masks", "vocab", "index")


@dataclass(frozen=True)
class Summary:
    """The main facts of a model file; `dtypes` counts stored bytes."""

    path: str
    files: int
    arch_name: str
    layers: int
    hidden_size: int
    vocab_size: int
    tensors: int
    parameters: int
    nbytes: int
    draft_tensors: int
    dtypes: dict[str, int]
    sections: dict[str, int]
    features: list[str]
    provenance: Json

    def to_json(self) -> dict[str, Json]:
        """All of it, for a script."""
        return asdict(self)

    def to_text(self) -> str:
        """All of it, a line a fact."""
        dtypes = ", ".join(f"{name} {size:,}" for name, size in self.dtypes.items())
        sections = ", ".join(f"{name} {size:,}" for name, size in self.sections.items())
        shards = "" if self.files == 1 else f" and {self.files - 1} more shards"
        lines = {
            "file": f"{self.path}{shards}",
            "model": f"{self.arch_name}: {self.layers} layers of {self.hidden_size}, "
            f"vocabulary {self.vocab_size:,}",
            "tensors": f"{self.tensors:,} with {self.parameters:,} values, "
            f"{self.nbytes:,} bytes",
            "draft": f"{self.draft_tensors} tensors" if self.draft_tensors else "none",
            "bytes by dtype": dtypes or "none",
            "sections": sections or "none",
            "requires": ", ".join(self.features),
        }
        return "\n".join(f"{key + ':':16}{value}" for key, value in lines.items())


def summarise(container: Container) -> Summary:
    """The facts of an open model, all shards together; reads no payload."""
    arch = container.header.arch
    entries = container.entries.values()
    dtypes: Counter[str] = Counter()
    for entry in entries:
        dtypes[entry.dtype] += entry.nbytes
    provenance = container.header.to_json().get("provenance")
    return Summary(
        path=str(container.path),
        files=len(container.files),
        arch_name=arch.arch_name,
        layers=arch.num_layers,
        hidden_size=arch.hidden_size,
        vocab_size=arch.vocab_size,
        tensors=len(entries),
        parameters=sum(int(np.prod(entry.shape, dtype=object)) for entry in entries),
        nbytes=sum(entry.nbytes for entry in entries),
        draft_tensors=sum(entry.name.startswith(DRAFT_PREFIX) for entry in entries),
        dtypes=dict(dtypes.most_common()),
        sections={name: len(part) for name, part in container.files[0].trailing().items()},
        features=[str(bit.name) for bit in container.files[0].envelope.features],
        provenance=provenance,
    )


def part_bytes(container: Container, part: str, *, raw: bool = False) -> bytes:
    """The header, a section, or a tensor (as .npy of f32 or whole numbers, or `raw`)."""
    if part == "header":
        return dump_header(container.header)
    if part in SECTIONS:
        section = container.files[0].trailing().get(part)
        if section is None:
            raise CmfError(f"{container.path}: has no section {part!r}")
        return bytes(section)
    if raw:
        return bytes(container.payload(part))
    file = io.BytesIO()
    is_whole = container.entry(part).dtype in WORDS
    np.save(file, container.words(part) if is_whole else container.tensor(part))
    return file.getvalue()
