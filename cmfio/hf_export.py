"""A container as a Hugging Face checkpoint: safetensors, config.json, tokenizer."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cmfio.atomic import replacing_folder
from cmfio.codecs.registry import CODECS
from cmfio.copying import BackgroundWriter
from cmfio.errors import UnknownCodec
from cmfio.header import Header
from cmfio.hf_config import config_from_header
from cmfio.hf_layout import model_order
from cmfio.hf_names import checkpoint_name
from cmfio.json_text import Json, spell_json
from cmfio.layout import Payload
from cmfio.policy import FLOATS
from cmfio.reader import Container
from cmfio.reencode import reencoded
from cmfio.rewrite import copy_tensor
from cmfio.safetensors_files import INDEX, SINGLE
from cmfio.writer import Output

HEADER_ALIGN = 8


@dataclass(frozen=True)
class _Piece:
    """A tensor under its checkpoint's name, and where it lies in its file's data."""

    name: str
    payload: Payload
    start: int
    end: int

    def record(self) -> dict[str, Json]:
        shape = list[Json](self.payload.shape)
        dtype = self.payload.dtype.upper()
        return {"dtype": dtype, "shape": shape, "data_offsets": [self.start, self.end]}


def export_hf(
    source: Container,
    folder: Path,
    dtype: str = "f16",
    output: Output = Output(),  # noqa: B008 — frozen
) -> list[Path]:
    """The files written into `folder`, which appears whole or not at all.

    Tensors stored as floats keep their bytes, others are decoded and stored as `dtype`.
    Skills, masks and index have no place in a checkpoint and stay behind. CmfError if the
    folder has something in it; UnsupportedFeature names what a config.json can't say.
    """
    if dtype not in FLOATS:
        raise UnknownCodec(
            f"no dtype {dtype!r} in a checkpoint; there are {', '.join(FLOATS)}"
        )
    where = str(source.path)
    config = config_from_header(source.header, where)
    names = [name for name in source.entries if not name.startswith("skill.")]
    payloads = [
        _payload(source, name, dtype, output.threads)
        for name in model_order(names, source.header.arch, where)
    ]
    files = _cut(payloads, output.shard_max_bytes)
    with replacing_folder(folder) as made:
        _write_weights(made, files, output)
        for name, data in _texts(source, config).items():
            (made / name).write_bytes(data)
    return sorted(folder.iterdir())


def _payload(source: Container, name: str, dtype: str, threads: int) -> Payload:
    entry = source.entries[name]
    if entry.dtype in FLOATS:
        return copy_tensor(source, name)
    if entry.dtype not in CODECS:
        raise UnknownCodec(
            f"{source.path}: tensor {name!r} ({entry.dtype}) holds no weights"
        )
    return reencoded(source, entry, dtype, threads)


def _cut(payloads: Sequence[Payload], most: int | None) -> list[list[_Piece]]:
    """Pieces by file; one alone may be larger than `most`, as every checkpoint's may."""
    files: list[list[_Piece]] = [[]]
    for payload in payloads:
        assert payload.nbytes is not None
        start = files[-1][-1].end if files[-1] else 0
        if most is not None and files[-1] and start + payload.nbytes > most:
            files.append([])
            start = 0
        name = checkpoint_name(payload.name)
        files[-1].append(_Piece(name, payload, start, start + payload.nbytes))
    return files


def _write_weights(folder: Path, files: Sequence[Sequence[_Piece]], output: Output) -> None:
    places: dict[str, Json] = {}
    total = sum(len(pieces) for pieces in files)
    for number, pieces in enumerate(files, start=1):
        name = f"model-{number:05}-of-{len(files):05}.safetensors"
        name = SINGLE if len(files) == 1 else name
        with (folder / name).open("xb") as file:
            _write_file(file, pieces)
        places |= {piece.name: name for piece in pieces}
        if output.progress is not None:
            output.progress(len(places), total)
    if len(files) > 1:
        size = sum(pieces[-1].end for pieces in files)
        index: dict[str, Json] = {"metadata": {"total_size": size}, "weight_map": places}
        (folder / INDEX).write_bytes(_spelled(index))


def _write_file(file: BinaryIO, pieces: Sequence[_Piece]) -> None:
    tree: dict[str, Json] = {"__metadata__": {"format": "pt"}}
    tree |= {piece.name: piece.record() for piece in pieces}
    head = spell_json(tree).encode("utf-8")
    head += b" " * (-len(head) % HEADER_ALIGN)
    with BackgroundWriter(file.fileno()) as writer:
        writer.put(len(head).to_bytes(8, "little") + head, 0)
        for piece in pieces:
            found = writer.put(piece.payload.bytes_now(), 8 + len(head) + piece.start)
            piece.payload.check_hash(found)
    os.fsync(file.fileno())


def _texts(source: Container, config: dict[str, Json]) -> dict[str, bytes]:
    texts = {"config.json": _spelled(config)}
    if source.vocab is not None:
        texts["tokenizer.json"] = bytes(source.vocab)
    texts |= _special(source.header)
    return texts


def _special(header: Header) -> dict[str, bytes]:
    special = header.tokenizer_config
    if special is None:
        return {}
    found = {}
    if special.eos_token_ids:
        ends: dict[str, Json] = {"eos_token_id": list[Json](special.eos_token_ids)}
        found["generation_config.json"] = _spelled(ends)
    if special.chat_template is not None:
        found["chat_template.jinja"] = special.chat_template.encode("utf-8")
    return found


def _spelled(value: dict[str, Json]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
