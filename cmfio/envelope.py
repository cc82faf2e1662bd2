"""The first 128 bytes: where each section lies, and what a reader must know."""

import struct
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

from cmfio.errors import (
    BoundsError,
    InvalidMagic,
    ParseError,
    UnsupportedFeature,
    UnsupportedVersion,
)
from cmfio.header import Header

MAGIC = b"CMF\x01"
VERSION = 2
SIZE = 128
DATA_ALIGN = 4096
U64 = 1 << 64
_LAYOUT = struct.Struct("<4sIII12QQQ")
SECTIONS = ("header", "dir", "data", "masks", "vocab", "index")


class Feature(IntFlag):
    """Bits of required_features; 3, 4 and everything from 14 on are refused."""

    TENSOR_DIR = 1 << 0
    BINARY_MASKS = 1 << 1
    QUANT_2F = 1 << 2
    LOOP_MASKS = 1 << 5
    SKILL_FILE = 1 << 6
    PRISM_HADAMARD = 1 << 7
    PRISM_AFFINE = 1 << 8
    SKILLS_V2 = 1 << 9
    ROUTER_V2 = 1 << 10
    DECISION = 1 << 11
    BOUNDED_STATE = 1 << 12
    GENOME = 1 << 13


# The peer's reader compares these with the header, and refuses the file when they differ.
COMPARED = (
    Feature.PRISM_HADAMARD
    | Feature.PRISM_AFFINE
    | Feature.SKILLS_V2
    | Feature.ROUTER_V2
    | Feature.DECISION
    | Feature.BOUNDED_STATE
    | Feature.GENOME
)


@dataclass(frozen=True)
class Span:
    """A stretch of the file; length 0 means the section is absent."""

    offset: int = 0
    length: int = 0

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.length


@dataclass(frozen=True)
class Envelope:
    """What the envelope says; a hash of 0 was not recorded."""

    features: Feature
    spans: dict[str, Span]
    header_hash: int
    directory_hash: int

    def pack(self) -> bytes:
        """The 128 bytes."""
        places = [
            n
            for name in SECTIONS
            for n in (self.spans[name].offset, self.spans[name].length)
        ]
        hashes = (self.header_hash, self.directory_hash)
        return _LAYOUT.pack(MAGIC, VERSION, 0, int(self.features), *places, *hashes)


def _cure(magic: bytes, path: Path) -> str:
    """What to do with a model in another format."""
    if magic == b"GGUF":
        return "; `cmf import-gguf` makes one of a GGUF"
    if path.suffix == ".safetensors":
        return "; a Hugging Face checkpoint is given as its folder"
    return "; give a .cmf, or the folder of a Hugging Face checkpoint"


def parse_envelope(data: bytes, size: int, path: Path) -> Envelope:
    """The envelope of a file of `size` bytes that begins with `data`, sections inside."""
    if size < SIZE:
        raise BoundsError(
            f"{path}: {size} bytes are too few for a .cmf; it was cut short, copy it "
            "again, or is none, give another"
        )
    magic, version, _flags, features, *numbers = _LAYOUT.unpack(data[:SIZE])
    if magic != MAGIC:
        raise InvalidMagic(
            f"{path}: begins with {magic.hex(' ')}, not a .cmf container"
            f"{_cure(magic, path)}"
        )
    if version != VERSION:
        raise UnsupportedVersion(
            f"{path}: is a container of version {version}, only {VERSION} is read; convert "
            "the model again, or use another program"
        )
    unknown = features & ~sum(Feature)
    if unknown:
        raise UnsupportedFeature(
            f"{path}: requires features unknown here (bits {unknown:#x}); "
            "it needs a newer program"
        )
    pairs = zip(SECTIONS, numbers[0:12:2], numbers[1:12:2], strict=True)
    spans = {name: Span(offset, length) for name, offset, length in pairs}
    for name, span in spans.items():
        _check_span(name, span, size, path)
    return Envelope(Feature(features), spans, numbers[12], numbers[13])


def required_features(header: Header, dtypes: set[str], *, has_masks: bool) -> Feature:
    """The bits a writer sets, all derived from what the file holds."""
    arch = header.arch
    prism = arch.prism_hadamard
    holds = {
        Feature.TENSOR_DIR: True,
        Feature.BINARY_MASKS: has_masks,
        Feature.QUANT_2F: bool(dtypes & {"q8_2f", "vbit"}),
        Feature.LOOP_MASKS: has_masks and arch.num_loops > 1,
        Feature.SKILL_FILE: any(skill.base_dir_hash is not None for skill in header.skills),
        Feature.PRISM_HADAMARD: prism is not None,
        Feature.PRISM_AFFINE: prism is not None and prism.affine is not None,
        Feature.SKILLS_V2: any(skill.kind is not None for skill in header.skills),
        Feature.ROUTER_V2: header.router is not None,
        Feature.DECISION: arch.arch_name.startswith("cortiq-decision-"),
        Feature.BOUNDED_STATE: arch.anchor_core is not None,
        Feature.GENOME: header.genome is not None,
    }
    features = Feature(0)
    for bit, held in holds.items():
        features |= bit if held else Feature(0)
    return features


def check_features(envelope: Envelope, header: Header, path: Path) -> None:
    """Raise ParseError where a compared bit and the header disagree."""
    derived = required_features(header, set(), has_masks=False)
    differing = (envelope.features ^ derived) & COMPARED
    if differing:
        raise ParseError(
            f"{path}: the envelope's features and the header disagree on {differing!s}; "
            "convert the model again"
        )


def _check_span(name: str, span: Span, size: int, path: Path) -> None:
    if span.length == 0:
        if name in {"header", "dir"}:
            raise BoundsError(
                f"{path}: section {name!r} is required and is empty; convert it again"
            )
        return
    if span.end >= U64 or span.end > size:
        raise BoundsError(
            f"{path}: section {name!r} needs bytes {span.offset:,} to {span.end:,}, the "
            f"file ends at {size:,}; it was cut short, copy or convert it again"
        )
    if name == "data" and span.offset % DATA_ALIGN:
        raise BoundsError(
            f"{path}: the data section starts at {span.offset:,}, not at a multiple "
            f"of {DATA_ALIGN}; convert it again"
        )
