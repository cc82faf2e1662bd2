"""`cmf dump` and `cmf extract`: one part of a container as a file of its own."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cmfio.atomic import refuse_same, replacing
from cmfio.codecs.words import WORDS
from cmfio.errors import CmfError
from cmfio.header import dump_header
from cmfio.layout import TRAILING
from cmfio.reader import Container

ALIASES = {"tokenizer": "vocab"}
NPY_BUFFER = 1 << 22


def dump_tensor(container: Container, name: str, out: Path) -> None:
    """Write a tensor as .npy: f32, or the whole numbers it holds."""
    refuse_same(out, container.paths)
    is_whole = container.entry(name).dtype in WORDS
    values = container.words(name) if is_whole else container.tensor(name)
    with replacing(out) as file:
        np.lib.format.write_array(file, np.asarray(values), allow_pickle=False)


def extract_part(container: Container, part: str, out: Path) -> None:
    """Write header, tokenizer (or vocab), masks, index, or a tensor's stored bytes."""
    refuse_same(out, container.paths)
    pieces = _pieces(container, ALIASES.get(part, part))
    with replacing(out) as file:
        for piece in pieces:
            file.write(piece)


def _pieces(container: Container, part: str) -> Iterator[bytes | memoryview]:
    if part == "header":
        return iter([dump_header(container.header)])
    if part not in TRAILING:
        container.entry(part)
        return container.chunks(part)
    section = container.files[0].trailing().get(part)
    if section is None:
        there = ", ".join(container.files[0].trailing()) or "none"
        raise CmfError(f"{container.path}: has no section {part!r}; it has {there}")
    return iter([section])
