"""`cmf dump` and `cmf extract`: one part of a container as a file of its own."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cmfio.atomic import check_output, replacing
from cmfio.codecs.words import WORDS
from cmfio.errors import CmfError
from cmfio.header import dump_header
from cmfio.layout import TRAILING
from cmfio.reader import Container
from cmfio.verify import check_sections, check_tensor

ALIASES = {"tokenizer": "vocab"}


def dump_tensor(container: Container, name: str, out: Path) -> None:
    """Write a tensor as .npy: f32, or the whole numbers it holds.

    DamagedTensor if its bytes don't have their recorded hash.
    """
    check_output(out, container.paths)
    is_whole = container.entry(name).dtype in WORDS
    check_tensor(container, name)
    values = container.words(name) if is_whole else container.tensor(name)
    with replacing(out) as file:
        np.lib.format.write_array(file, np.asarray(values), allow_pickle=False)


def extract_part(container: Container, part: str, out: Path) -> None:
    """Write header, tokenizer (or vocab), masks, index, or a tensor's stored bytes.

    DamagedTensor if they don't have their recorded hash.
    """
    check_output(out, container.paths)
    pieces = _pieces(container, part)
    with replacing(out) as file:
        for piece in pieces:
            file.write(piece)


def _pieces(container: Container, part: str) -> Iterator[bytes | memoryview]:
    name = ALIASES.get(part, part)
    if name != "header" and name not in TRAILING:
        check_tensor(container, part)
        return container.chunks(part)
    check_sections(container, name)
    if name == "header":
        return iter([dump_header(container.header)])
    sections = container.files[0].trailing()
    if name not in sections:
        words = {section: word for word, section in ALIASES.items()}
        there = ", ".join(words.get(section, section) for section in sections) or "none"
        raise CmfError(
            f"{container.path}: has no {part}; of tokenizer, masks and index it has {there}"
        )
    return iter([sections[name]])
