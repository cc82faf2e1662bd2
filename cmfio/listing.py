"""`cmf info`: the main facts of a model file."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from cmfio.dtypes import element_count
from cmfio.envelope import Feature
from cmfio.header import TensorEntry
from cmfio.identity import DRAFT_PREFIX
from cmfio.json_text import Json, spell_json
from cmfio.reader import Container

LEAF_WIDTH = 64  # a terminal's 80, less what stands before a fact


@dataclass(frozen=True)
class Summary:
    """The main facts of a model file; `dtypes` counts stored bytes.

    `notes` are oddities that a peer's program may have left, and that no check refuses.
    """

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
    draft_parameters: int
    draft_declared: bool
    dtypes: dict[str, int]
    sections: dict[str, int]
    features: list[str]
    skills: list[str]
    quant_type: str
    arch: Json
    provenance: Json
    notes: list[str]

    def to_json(self) -> dict[str, Json]:
        """All of it, for a script."""
        return asdict(self)

    def to_lines(self) -> list[str]:
        """The most of it, a line a fact."""
        shards = "" if self.files == 1 else f" and {self.files - 1} more shards"
        lines = {
            "file": f"{self.path}{shards}",
            "model": f"{self.arch_name}: {self.layers} layers of {self.hidden_size}, "
            f"vocabulary {self.vocab_size:,}",
            "tensors": f"{self.tensors:,} with {self.parameters:,} values, "
            f"{self.nbytes:,} bytes",
            "draft": self._draft(),
            "bytes by dtype": _counts(self.dtypes),
            "sections": _counts(self.sections),
            "requires": ", ".join(self.features),
            "skills": ", ".join(self.skills),
        }
        shown = [f"{key + ':':16}{value}" for key, value in lines.items() if value]
        for number, line in enumerate(_leaves(self.provenance)):
            shown.append(f"{'' if number else 'provenance:':16}{line}")
        return shown + [f"{'note:':16}{note}" for note in self.notes]

    def _draft(self) -> str:
        if self.draft_tensors:
            return f"{self.draft_tensors} tensors with {self.draft_parameters:,} values"
        return "declared, but its tensors aren't here" if self.draft_declared else "none"


def _leaves(value: Json, place: str = "") -> Iterator[str]:
    """`key.key value` in lines of `LEAF_WIDTH`; of a list with objects in it, each item."""
    if isinstance(value, dict):
        for key, inner in value.items():
            name = spell_json(key)[1:-1]  # on one line, whatever it holds
            yield from _leaves(inner, f"{place}.{name}" if place else name)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{place}[{number}]")
    elif value is not None:
        text = (
            f"[{', '.join(map(spell_json, value))}]"
            if isinstance(value, list)
            else spell_json(value)
        )
        yield from textwrap.wrap(
            f"{place} {text}".lstrip(),
            LEAF_WIDTH,
            subsequent_indent="  ",
            break_on_hyphens=False,
            break_long_words=False,
        )


def summarise(container: Container) -> Summary:
    """The facts of an open model, all shards together; reads no payload."""
    header = container.header
    entries = container.entries.values()
    draft = [entry for entry in entries if entry.name.startswith(DRAFT_PREFIX)]
    dtypes: Counter[str] = Counter()
    for entry in entries:
        dtypes[entry.dtype] += entry.nbytes
    tree = header.to_json()
    return Summary(
        path=str(container.path),
        files=len(container.files),
        arch_name=header.arch.arch_name,
        layers=header.arch.num_layers,
        hidden_size=header.arch.hidden_size,
        vocab_size=header.arch.vocab_size,
        tensors=len(entries),
        parameters=_values(entries),
        nbytes=sum(entry.nbytes for entry in entries),
        draft_tensors=len(draft),
        draft_parameters=_values(draft),
        draft_declared=header.arch.mtp is not None,
        dtypes=dict(dtypes.most_common()),
        sections={name: len(part) for name, part in container.files[0].trailing().items()},
        features=[str(bit.name) for bit in container.files[0].envelope.features],
        skills=[skill.id for skill in header.skills],
        quant_type=header.quant_type,
        arch=tree["arch"],
        provenance=tree.get("provenance"),
        notes=list(_notes(container)),
    )


def _notes(container: Container) -> Iterator[str]:
    first = container.files[0]
    hashes = first.header.section_hashes
    recorded = {} if hashes is None else hashes.to_json()
    for name in sorted(set(recorded) - set(first.trailing())):
        if recorded[name] is not None:
            yield f"a hash of {name} is recorded, but there is no such section"
    is_skill = any(skill.base_dir_hash is not None for skill in first.header.skills)
    if is_skill and Feature.SKILL_FILE not in first.envelope.features:
        yield "a skill for another model, though the envelope doesn't say so"
    if len(first.header.arch.layer_types) != first.header.arch.num_layers:
        yield "layer_types doesn't name every layer"


def _values(entries: Iterable[TensorEntry]) -> int:
    return sum(element_count(entry.shape) for entry in entries)


def _counts(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {size:,}" for name, size in sizes.items()) or "none"
