"""GGUF's own reader, held to the file: what would lie behind its end is refused by name."""

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader
from gguf.constants import GGUF_MAGIC
from gguf.gguf_reader import READER_SUPPORTED_VERSIONS, ReaderField

from cmfio.errors import ParseError, UnsupportedFeature
from cmfio.opening import open_regular

AGAIN = "it was cut short or is damaged, copy or download it again"


def refuse_no_gguf(path: Path) -> None:
    """ParseError for a file of another kind, UnsupportedFeature for another version."""
    with open_regular(path, "a GGUF file") as file:
        head = file.read(8)
    if len(head) < 8 or head[:4] != struct.pack("<I", GGUF_MAGIC):
        raise ParseError(
            f"{path}: is no GGUF file, these begin with 'GGUF' and it with {head[:4]!r}; "
            "give a .gguf as llama.cpp writes it"
        )
    # Of a file in the other byte order the low half is zero: the reader turns it round.
    versions = {struct.unpack(order, head[4:])[0] for order in ("<I", ">I")}
    if versions.isdisjoint(READER_SUPPORTED_VERSIONS):
        raise UnsupportedFeature(
            f"{path}: is GGUF of version {struct.unpack('<I', head[4:])[0]:,}, known are "
            f"{' and '.join(map(str, READER_SUPPORTED_VERSIONS))}; convert the model again"
        )


class CheckedReader(GGUFReader):  # type: ignore[misc]  # the package tells no types
    """The reader of the package, which would take an array cut short for all of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(path)

    # The signature is the reader's, whose types are numpy's loosest.
    def _get(self, offset: int, dtype: Any, count: int = 1, *order: Any, **by: Any) -> Any:
        if type(self.data) is np.memmap:  # slices of one cost several times an array's
            self.data: np.ndarray[Any, Any] = np.asarray(self.data)
        end, size = offset + np.dtype(dtype).itemsize * int(count), len(self.data)
        if end > size:
            raise ParseError(
                f"{self._path}: its header goes on to byte {end:,}, the file ends at "
                f"{size:,}; {AGAIN}"
            )
        return super()._get(offset, dtype, count, *order, **by)

    def _build_tensors(self, start_offs: int, fields: list[ReaderField]) -> None:
        for field in fields:
            self._refuse_outside(int(start_offs), field)
        super()._build_tensors(start_offs, fields)

    def _refuse_outside(self, start: int, field: ReaderField) -> None:
        _, _, _, dims, raw_type, offset = field.parts
        name, size = field.name, len(self.data)
        if int(raw_type[0]) not in {one.value for one in GGMLQuantizationType}:
            raise UnsupportedFeature(
                f"{self._path}: tensor {name!r} is of type {int(raw_type[0])}, which isn't "
                "known here; convert the model to another"
            )
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(int(raw_type[0]))]
        need = math.prod(map(int, dims)) // block * block_bytes
        place = start + int(offset[0])
        if place + need > size:
            raise ParseError(
                f"{self._path}: tensor {name!r} at byte {place:,} needs {need:,} bytes, "
                f"the file ends at {size:,}; {AGAIN}"
            )
