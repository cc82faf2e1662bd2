"""The tensor directory: records of 56 bytes and a pool of names."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from cmfio.dtypes import BY_ID, MAX_ELEMENTS, Dtype, dtype_named, element_count
from cmfio.envelope import U64
from cmfio.errors import BoundsError, ParseError, UnknownDtype
from cmfio.header import TensorEntry
from cmfio.vbit import check_vbit

HEAD = struct.Struct("<QQ")
RECORD = struct.Struct("<IHBB6IQQQ")
TENSOR_ALIGN = 64
MAX_NDIM = 6


def parse_directory(data: bytes, path: Path, shard: int = 0) -> list[TensorEntry]:
    """The records in their order; sizes and places are `check_entries`' business."""
    if len(data) < HEAD.size:
        raise ParseError(f"{path}: a tensor directory of {len(data)} bytes is too short")
    count, pool_offset = HEAD.unpack_from(data)
    end = HEAD.size + count * RECORD.size
    if not end <= pool_offset <= len(data):
        raise ParseError(
            f"{path}: the tensor directory claims {count:,} records and a name pool at "
            f"{pool_offset:,} in {len(data):,} bytes"
        )
    pool = data[pool_offset:]
    records = RECORD.iter_unpack(data[HEAD.size : end])
    return [
        _entry(record, pool, f"{path}: tensor #{i}", shard)
        for i, record in enumerate(records)
    ]


def pack_directory(entries: Sequence[TensorEntry]) -> bytes:
    """The directory of `entries`, names in order; ParseError if one can't be written."""
    pool = bytearray()
    records = bytearray()
    for entry in entries:
        name = entry.name.encode("utf-8")
        _check_writable(entry, len(name), len(pool))
        dims = (*entry.shape, *(0,) * (MAX_NDIM - len(entry.shape)))
        head = (len(pool), len(name), dtype_named(entry.dtype).id, len(entry.shape))
        records += RECORD.pack(*head, *dims, entry.offset, entry.nbytes, entry.hash64)
        pool += name
    return HEAD.pack(len(entries), HEAD.size + len(records)) + records + pool


def directory_size(names: Sequence[str]) -> int:
    """How many bytes `pack_directory` will give for tensors of these names."""
    return HEAD.size + sum(RECORD.size + len(name.encode("utf-8")) for name in names)


def check_entries(entries: Sequence[TensorEntry], data: memoryview, path: Path) -> None:
    """Raise where a tensor lies outside `data`, has a wrong size, or shares its name."""
    for entry in entries:
        where = f"{path}: tensor {entry.name!r}"
        _check_place(entry, len(data), where)
        _check_size(entry, where)
        if entry.dtype in {"vbit", "vbit_ro"}:
            payload = data[entry.offset : entry.offset + entry.nbytes]
            check_vbit(payload, entry.shape, where, with_offsets=entry.dtype == "vbit_ro")
    by_name(entries, path)


def by_name(entries: Sequence[TensorEntry], path: Path) -> Mapping[str, TensorEntry]:
    """The entries under their names, in order; ParseError when one stands twice."""
    named: dict[str, TensorEntry] = {}
    for entry in entries:
        if entry.name in named:
            raise ParseError(f"{path}: tensor {entry.name!r} stands twice in the directory")
        named[entry.name] = entry
    return named


def _entry(record: tuple[int, ...], pool: bytes, where: str, shard: int) -> TensorEntry:
    name_offset, name_length, dtype_id, ndim, *dims = record[:10]
    if ndim > MAX_NDIM:
        raise ParseError(f"{where} has {ndim} dimensions, the format allows {MAX_NDIM}")
    if name_offset + name_length > len(pool):
        raise ParseError(f"{where}: its name lies outside the name pool")
    try:
        name = pool[name_offset : name_offset + name_length].decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"{where}: its name isn't UTF-8") from error
    if dtype_id not in BY_ID:
        raise UnknownDtype(
            f"{where} ({name!r}) has dtype id {dtype_id}; 0 to {max(BY_ID)} are known"
        )
    offset, nbytes, checksum = record[10:]
    shape = tuple(dims[:ndim])
    return TensorEntry(name, BY_ID[dtype_id].name, shape, offset, nbytes, checksum, shard)


def _check_place(entry: TensorEntry, data_length: int, where: str) -> None:
    end = entry.offset + entry.nbytes
    if entry.offset % TENSOR_ALIGN:
        raise BoundsError(
            f"{where} at {entry.offset:,}, not at a multiple of {TENSOR_ALIGN}"
        )
    if end >= U64 or end > data_length:
        raise BoundsError(
            f"{where} needs data bytes {entry.offset:,} to {end:,}, the data end at "
            f"{data_length:,}; it was cut short, copy or convert it again"
        )


def _check_size(entry: TensorEntry, where: str) -> None:
    # Zero dimensions don't excuse the others: numpy refuses such shapes, and so do we.
    if element_count(tuple(max(dim, 1) for dim in entry.shape)) > MAX_ELEMENTS:
        raise BoundsError(f"{where}: shape {list(entry.shape)} has more elements than fit")
    dtype = dtype_named(entry.dtype)
    _check_tiled(dtype, entry, where)
    expected = dtype.nbytes(entry.shape)
    if expected is not None and entry.nbytes != expected:
        raise BoundsError(
            f"{where}: {dtype.name} of shape {list(entry.shape)} takes {expected:,} "
            f"bytes, the directory says {entry.nbytes:,}"
        )


def _check_tiled(dtype: Dtype, entry: TensorEntry, where: str) -> None:
    if not dtype.tiled:
        return
    if len(entry.shape) != 2 or entry.shape[1] % 32:
        raise BoundsError(
            f"{where}: {dtype.name} needs 2 dimensions and columns in groups of 32, "
            f"its shape is {list(entry.shape)}"
        )
    if entry.nbytes < dtype.least(entry.shape):
        raise BoundsError(
            f"{where}: {entry.nbytes:,} bytes can't hold its {dtype.name} header"
        )


def _check_writable(entry: TensorEntry, name_length: int, pool_length: int) -> None:
    if name_length >= 1 << 16 or pool_length >= 1 << 32:
        raise ParseError(
            f"tensor {entry.name[:60]!r}…: its name is too long for the directory"
        )
    if len(entry.shape) > MAX_NDIM or any(not 0 <= dim < 1 << 32 for dim in entry.shape):
        raise ParseError(
            f"tensor {entry.name!r}: shape {list(entry.shape)} doesn't fit a container "
            f"({MAX_NDIM} dimensions below 2^32)"
        )
