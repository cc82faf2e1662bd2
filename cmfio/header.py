"""The header of a container: parse, edit, write back; a directory's line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, ValidationError

from cmfio.arch import Arch, LayerType, Moe, Mtp
from cmfio.dtypes import Label
from cmfio.errors import ParseError
from cmfio.json_text import Json, parse_object, spell_json
from cmfio.record import U32, Int, Real, Record, Text, from_file

__all__ = [
    "HEAL",
    "Arch",
    "Header",
    "LayerType",
    "Moe",
    "Mtp",
    "SectionHashes",
    "TensorEntry",
    "TokenizerConfig",
    "dump_header",
    "parse_header",
]

HEAL = "mtp_heal"  # the key of a provenance under which a heal says what it did


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of the directory; `offset` counts from its shard's data, `shard` from 0."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    hash64: int
    shard: int = 0


class TokenizerConfig(Record):
    """Special ids and the chat template."""

    chat_template: Text | None = None
    eos_token_ids: tuple[U32, ...] = ()
    bos_token_id: U32 | None = None
    pad_token_id: U32 | None = None


class SectionHashes(Record):
    """hash64 of the trailing sections, 16 hex digits each."""

    masks: Text | None = None
    vocab: Text | None = None
    index: Text | None = None


class Shard(Record):
    """Which of several files this is, from 1."""

    no: int = Field(strict=True, ge=1)
    count: Int


class Calibration(Record):
    """Temperature of the probabilities, and their expected calibration error."""

    temperature: Real
    ece_before: Real | None = None
    ece_after: Real | None = None


class Routing(Record):
    """How skills are chosen."""

    temperature: Real
    novelty_theta: Real
    samples: Int
    target_fpr: Real


class Skill(Record):
    """A skill carried by the file; most of its v2 keys are kept as unknown ones."""

    id: Text
    name: Text | None = None
    layers: tuple[Int, ...] = ()
    selection: object | None = None
    input_mask_task: object | None = None
    quality: object | None = None
    base_dir_hash: Text | None = None
    base_arch: Text | None = None
    task: Text | None = None
    provenance: object | None = None
    kind: Text | None = None
    bound: object | None = None


class Genome(Record):
    """A sealed trunk: any change to it must be refused."""

    id: Text
    generation: U32
    status: Literal["pre_chat", "sealed", "candidate", "rejected"]
    trunk_hash: Text = ""
    encoding: Text
    master_trunk_hash: Text = ""
    parent: object | None = None
    reference: object | None = None
    moe_experts: Int | None = None


class Header(Record):
    """The whole header; `with_provenance` and `replace_arch` give changed copies."""

    DEFAULT_OMITTED = frozenset({"skills", "lineage", "segments"})

    format: Text = "cmf"
    version: U32 = Field(default=2)
    arch: Arch
    quant_type: Label
    provenance: object | None = None
    tokenizer_config: TokenizerConfig | None = None
    section_hashes: SectionHashes | None = None
    skills: tuple[Skill, ...] = ()
    shard: Shard | None = None
    calibration: Calibration | None = None
    routing: Routing | None = None
    genome: Genome | None = None
    lineage: tuple[object, ...] = ()
    router: object | None = None
    segments: tuple[object, ...] = ()

    @property
    def provenance_by_key(self) -> Mapping[str, Json]:
        """What its provenance object says; nothing where it is none."""
        return self.provenance if isinstance(self.provenance, dict) else {}

    def with_provenance(self, key: str, value: Json) -> Self:
        """A copy whose provenance object says `key: value`; its other keys are kept."""
        said = {**self.provenance_by_key, key: value}
        return self.model_copy(update={"provenance": said})

    def replace_arch(self, **changes: object) -> Self:
        """A copy with fields of `arch` changed, None removing one; else ParseError."""
        given = {name: getattr(self.arch, name) for name in self.arch.model_fields_set}
        try:
            checked = Arch.model_validate({**given, **changes})
        except ValidationError as error:
            raise ParseError(f"arch: {_first_problem(error)}") from error
        unknown = set(changes) - set(Arch.model_fields)
        if unknown:
            raise ParseError(f"arch has no field {min(unknown)!r}")
        update = {name: getattr(checked, name) for name in changes}
        return self.model_copy(update={"arch": self.arch.model_copy(update=update)})


def parse_header(data: bytes) -> Header:
    """The header `data` spells; ParseError names the first missing or wrong field."""
    tree = parse_object(data, "header")
    if "version" not in tree:
        raise ParseError(
            "header: version: missing; the file is no container of this format"
        )
    try:
        return Header.model_validate(from_file(tree))
    except ValidationError as error:
        raise ParseError(f"header: {_first_problem(error)}") from error


def dump_header(header: Header) -> bytes:
    """The header's bytes: those parsed, if a peer wrote them and nothing was changed."""
    return spell_json(header.to_json()).encode("utf-8")


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}"
