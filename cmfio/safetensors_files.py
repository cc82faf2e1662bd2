"""The safetensors files of a checkpoint: names, shapes, places. No payload is read.

A file is 8 bytes of length, a JSON header of that length, and the payloads. Numbers in it
are compared with the file's size before anything is allocated.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cmfio.copying import FileRange
from cmfio.dtypes import Shape, element_count
from cmfio.errors import BoundsError, FileNotFound, ParseError
from cmfio.json_text import Json, parse_object
from cmfio.opening import open_regular, read_regular

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
AGAIN = "download or convert it again"
MOST_HEADER_BYTES = 100_000_000  # the format's own limit
WIDTHS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64"), 8),
}


@dataclass(frozen=True)
class SafeTensor:
    """A tensor of a checkpoint; `dtype` is the file's word for it, `stored` its place."""

    name: str
    dtype: str
    shape: Shape
    stored: FileRange


@contextlib.contextmanager
def open_checkpoint(
    folder: Path, patch: Path | None = None
) -> Iterator[Mapping[str, SafeTensor]]:
    """The tensors of a folder by name, their files open meanwhile.

    Of several files the index says which has what; ParseError if one hasn't. Files in the
    folder `patch` stand in for those of the same name.
    """
    places = _places(patched(folder, patch, INDEX))
    names = list(dict.fromkeys(places.values())) if places else [_single(folder)]
    with contextlib.ExitStack() as stack:
        files = {}
        for name in names:
            path = patched(folder, patch, name)
            files[name] = read_file(path, _opened(stack, path)).tensors
        if places:
            yield {
                name: _found(folder, files, name, place) for name, place in places.items()
            }
        else:
            yield files[names[0]]


def patched(folder: Path, patch: Path | None, name: str) -> Path:
    """Where a file of a folder is read from: `patch`, if that has it."""
    if patch is not None and (patch / name).exists():
        return patch / name
    return folder / name


@dataclass(frozen=True)
class SafeFile:
    """What a safetensors file says it has; `metadata` is None where it says nothing."""

    tensors: dict[str, SafeTensor]
    metadata: Json


def read_file(path: Path, handle: int) -> SafeFile:
    """What an open file describes; ParseError or BoundsError if it is broken."""
    size = os.fstat(handle).st_size
    length = int.from_bytes(os.pread(handle, 8, 0), "little")
    if not 2 <= length <= min(size - 8, MOST_HEADER_BYTES):
        raise BoundsError(
            f"{path}: claims a header of {length:,} bytes in a file of {size:,}; it was "
            "cut short or isn't a safetensors file"
        )
    tree = parse_object(os.pread(handle, length, 8), f"{path}: header")
    data = FileRange(path, handle, 8 + length, size - 8 - length)
    metadata = tree.pop("__metadata__", None)
    tensors = {name: _tensor(name, record, data) for name, record in tree.items()}
    return SafeFile(tensors, metadata)


def _tensor(name: str, record: Json, data: FileRange) -> SafeTensor:
    where = f"{data.path}: tensor {name!r}"
    if not isinstance(record, dict):
        raise ParseError(f"{where}: its record isn't an object; {AGAIN}")
    dtype, shape = record.get("dtype"), _wholes(record.get("shape"), where)
    if not isinstance(dtype, str) or dtype not in WIDTHS:
        known = ", ".join(WIDTHS)
        raise ParseError(f"{where}: dtype {dtype!r} isn't one of {known}; convert it")
    offsets = _wholes(record.get("data_offsets"), where)
    start, end = offsets if len(offsets) == 2 else (1, 0)
    if not 0 <= start <= end <= data.nbytes:
        raise BoundsError(
            f"{where}: lies at {list(offsets)}, the file's data end at {data.nbytes:,}; "
            "it was cut short, copy it again"
        )
    need = WIDTHS[dtype] * element_count(shape)
    if end - start != need:
        raise BoundsError(
            f"{where}: {dtype} of shape {list(shape)} takes {need:,} bytes, it has "
            f"{end - start:,}; {AGAIN}"
        )
    stored = FileRange(data.path, data.handle, data.offset + start, need)
    return SafeTensor(name, dtype, shape, stored)


def _wholes(value: Json, where: str) -> tuple[int, ...]:
    numbers = value if isinstance(value, list) else [None]
    wholes = tuple(n for n in numbers if isinstance(n, int) and not isinstance(n, bool))
    if len(wholes) != len(numbers) or min(wholes, default=0) < 0:
        raise ParseError(f"{where}: {value!r} should be a list of whole numbers; {AGAIN}")
    return wholes


def _places(path: Path) -> dict[str, str]:
    """Which file has which tensor, by the index at `path`; empty without one."""
    if not path.is_file():
        return {}
    listed = parse_object(read_regular(path, "an index"), str(path)).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise ParseError(f"{path}: has no weight_map; download it again")
    places = {name: str(place) for name, place in listed.items()}
    for place in places.values():
        if Path(place).name != place or not place.endswith(".safetensors"):
            raise ParseError(f"{path}: {place!r} isn't a file's name beside it; {AGAIN}")
    return places


def _single(folder: Path) -> str:
    if (folder / SINGLE).is_file():
        return SINGLE
    found = sorted(path.name for path in folder.glob("*.safetensors"))
    if len(found) != 1:
        raise FileNotFound(
            f"{folder}: has {len(found)} safetensors files, and neither {SINGLE} nor "
            f"{INDEX}; give the folder of a whole checkpoint"
        )
    return found[0]


def _opened(stack: contextlib.ExitStack, path: Path) -> int:
    try:
        file = stack.enter_context(open_regular(path, "a safetensors file"))
    except FileNotFound:
        raise FileNotFound(f"{path}: isn't there, but {INDEX} names it; get it") from None
    return file.fileno()


def _found(
    folder: Path, files: Mapping[str, Mapping[str, SafeTensor]], name: str, place: str
) -> SafeTensor:
    if name not in files[place]:
        raise ParseError(
            f"{folder / place}: has no tensor {name!r}, though {INDEX} says so; {AGAIN}"
        )
    return files[place][name]
