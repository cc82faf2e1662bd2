"""Safetensors files written: tensors one by one, never a model in memory."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cmfio.copying import BackgroundWriter
from cmfio.json_text import Json, spell_json
from cmfio.layout import Payload

HEADER_ALIGN = 8
METADATA: Mapping[str, Json] = {"format": "pt"}


@dataclass(frozen=True)
class Piece:
    """A tensor under its checkpoint's name, and where it lies in its file's data."""

    payload: Payload
    start: int

    @property
    def nbytes(self) -> int:
        """How long it is."""
        assert self.payload.nbytes is not None
        return self.payload.nbytes

    def record(self, dtype: str) -> dict[str, Json]:
        """What the file's header says of it."""
        shape = list[Json](self.payload.shape)
        return {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [self.start, self.start + self.nbytes],
        }


def laid_out(payloads: Iterable[Payload]) -> Iterator[Piece]:
    """Tensors one behind the other, as the format wants them: without gaps."""
    start = 0
    for payload in payloads:
        yield Piece(payload, start)
        assert payload.nbytes is not None
        start += payload.nbytes


def write_safetensors(
    path: Path, payloads: Sequence[Payload], metadata: Json = None
) -> None:
    """A new file at `path` with these tensors in their order, synced.

    Dtypes of the payloads are a container's, or already the file's own words.
    """
    pieces = list(laid_out(payloads))
    tree: dict[str, Json] = {} if metadata is None else {"__metadata__": metadata}
    tree |= {
        piece.payload.name: piece.record(piece.payload.dtype.upper()) for piece in pieces
    }
    head = spell_json(tree).encode("utf-8")
    head += b" " * (-len(head) % HEADER_ALIGN)
    with path.open("xb") as file:
        with BackgroundWriter(file.fileno()) as writer:
            writer.put(len(head).to_bytes(8, "little") + head, 0)
            for piece in pieces:
                place = 8 + len(head) + piece.start
                found = writer.put(piece.payload.bytes_now(), place)
                piece.payload.check_hash(found)
        os.fsync(file.fileno())


def index_bytes(places: Mapping[str, str], total_size: int) -> bytes:
    """An index: which file has which tensor."""
    listed: dict[str, Json] = dict(places)
    return spelled({"metadata": {"total_size": total_size}, "weight_map": listed})


def spelled(value: dict[str, Json]) -> bytes:
    """A JSON file as people read it."""
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
