# ruff: noqa: N818 — the names are the peer's own words for its error kinds.
"""What can go wrong with a container; `kind` is the peer's own word, where it has one."""

from typing import ClassVar


class CmfError(Exception):
    """Base of everything this room raises on bad input."""

    kind: ClassVar[str] = "Cmf"


class FileNotFound(CmfError):
    """The container, or one of its shards, isn't there."""

    kind = "FileNotFound"


class InvalidMagic(CmfError):
    """The first four bytes aren't a container's."""

    kind = "InvalidMagic"


class UnsupportedVersion(CmfError):
    """A container of another major version."""

    kind = "UnsupportedVersion"


class UnsupportedFeature(CmfError):
    """The file requires something we don't have, or forbids what was asked of it."""

    kind = "UnsupportedFeature"


class UnknownDtype(CmfError):
    """A dtype id or name outside the format's table."""

    kind = "UnknownDtype"


class UnknownCodec(CmfError):
    """A codec that can't be encoded or decoded here; the text lists those that can."""

    kind = "UnknownCodec"


class MissingTensor(CmfError):
    """A tensor asked for by name isn't in the directory."""

    kind = "MissingTensor"


class BoundsError(CmfError):
    """A section or payload outside the file, misplaced, or of the wrong size."""

    kind = "Bounds"


class CmfIoError(CmfError):
    """The operating system refused to read or write."""

    kind = "Io"


class BadPath(CmfIoError):
    """What a user named can't be read or written, whatever is tried: a folder, a device."""


class ParseError(CmfError):
    """Header, directory, masks, index or tokenizer don't say something valid."""

    kind = "Parse"


class DamagedTensor(CmfError):
    """A payload or a section whose bytes don't have the hash that was recorded."""

    kind = "Damaged"


class NotEncodable(CmfError):
    """Values or a shape the codec can't hold."""

    kind = "NotEncodable"


class SameFile(CmfError):
    """The output is the input."""

    kind = "SameFile"
