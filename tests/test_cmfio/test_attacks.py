"""Hostile files: nothing but CmfError escapes, and valid odd files still open."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cmfio.errors import BoundsError, CmfError, ParseError
from cmfio.reader import open_container
from cmfio.verify import verify

PEERS = Path(__file__).parents[1] / "peers" / "cmf"
BASE = (PEERS / "invalid" / "valid_base.cmf").read_bytes()
FULL = (PEERS / "full.cmf").read_bytes()
DIRECTORY = int.from_bytes(BASE[0x20:0x28], "little")
U64 = 2**64


def opened(data: bytes, folder: Path) -> list[str]:
    path = folder / "attack.cmf"
    path.write_bytes(data)
    with open_container(path) as container:
        for name, entry in container.entries.items():
            if entry.dtype in {"f16", "q8_row", "f32"}:
                container.tensor(name)
        return verify(container)


def patched(at: int, layout: str, *numbers: int) -> bytes:
    data = bytearray(BASE)
    struct.pack_into(layout, data, at, *numbers)
    return bytes(data)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    for length in [*range(0, 700, 7), *range(700, len(BASE), 97), len(BASE) - 1]:
        with pytest.raises(CmfError):
            opened(BASE[:length], tmp_path)


def test_random_damage_never_escapes_as_another_error(tmp_path: Path) -> None:
    generator = np.random.default_rng(11)
    refused = 0
    for source in (BASE, FULL):
        head = struct.unpack_from("<Q", source, 0x30)[0]
        for _ in range(60):
            data = bytearray(source)
            for place in generator.integers(0, head, generator.integers(1, 4)):
                data[place] = generator.integers(256)
            try:
                opened(bytes(data), tmp_path)
            except CmfError:
                refused += 1
    assert refused > 50  # most of the head is checked; padding and texts are free


def record(number: int) -> int:
    return DIRECTORY + 16 + 56 * number


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (patched(0x18, "<Q", U64 - 1), BoundsError),
        (patched(0x28, "<Q", U64 - 1), BoundsError),
        (patched(0x40, "<QQ", U64 - 8, 16), BoundsError),
        (patched(DIRECTORY, "<Q", U64 - 1), ParseError),
        (patched(DIRECTORY, "<Q", U64 // 56), ParseError),
        (patched(DIRECTORY + 8, "<Q", U64 - 1), ParseError),
        (patched(record(0), "<I", 2**32 - 1), ParseError),
        (patched(record(0) + 40, "<Q", U64 - 1), BoundsError),
        (patched(record(0) + 32, "<QQ", U64 - 64, 128), BoundsError),
        (patched(record(2) + 7, "<B6I", 6, *[2**32 - 1] * 6), BoundsError),
        (patched(record(2) + 7, "<B6IQQ", 6, *[2**32 - 1] * 5, 0, 0, 0), BoundsError),
    ],
)
def test_wrapping_sizes_are_refused(
    data: bytes, error: type[CmfError], tmp_path: Path
) -> None:
    with pytest.raises(error):
        opened(data, tmp_path)


def with_index_entry(groups: int, heads: int) -> bytes:
    offset = struct.unpack_from("<Q", BASE, 0x60)[0]
    return patched(offset + 8 + 8, "<II", groups, heads)


def with_mask_blob(text: bytes, other: bytes) -> bytes:
    assert BASE.count(text) >= 1
    assert len(text) == len(other)
    return BASE.replace(text, other, 1)


@pytest.mark.parametrize(
    "data",
    [
        with_index_entry(2**32 - 1, 3),
        with_index_entry(3, 2**32 - 1),
        with_mask_blob(b'"blob_len":21', b'"blob_len":22'),
        with_mask_blob(b'"blob_off":520', b'"blob_off":-20'),
        with_mask_blob(b'"Fallback"', b'"Fallbacc"'),
    ],
)
def test_masks_and_index_are_judged(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ParseError):
        opened(data, tmp_path)


def test_a_claimed_billion_of_shards_fails_at_the_first_missing(tmp_path: Path) -> None:
    shard = (PEERS / "shards" / "tiny-00001-of-00003.cmf").read_bytes()
    text = b'"shard":{"no":1,"count":3}'
    path = tmp_path / "tiny-00001-of-1000000000.cmf"
    grown = bytearray(shard)
    offset, length = struct.unpack_from("<QQ", shard, 0x10)
    header = shard[offset : offset + length].replace(
        text, b'"shard":{"no":1,"count":1000000000}'
    )
    struct.pack_into("<QQ", grown, 0x10, len(shard), len(header))
    path.write_bytes(bytes(grown) + header)
    with pytest.raises(CmfError, match="no such file"):
        open_container(path)


def appended_head(data: bytes) -> bytes:
    """Header and directory moved to the end, as a tail append leaves them."""
    moved = bytearray(data)
    for at in (0x10, 0x20):
        offset, length = struct.unpack_from("<QQ", data, at)
        struct.pack_into("<Q", moved, at, len(moved))
        moved += data[offset : offset + length]
    return bytes(moved)


def overlapping_payloads(data: bytes) -> bytes:
    """Two tensors of the same bytes: legal, nobody checks for it."""
    moved = bytearray(data)
    moved[record(1) + 6 : record(2)] = data[record(0) + 6 : record(1)]
    return bytes(moved)


def trailing_bytes(data: bytes) -> bytes:
    return data + b"\xff" * 4096


@pytest.mark.parametrize("change", [appended_head, overlapping_payloads, trailing_bytes])
def test_valid_odd_files_still_open(
    change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    problems = [
        line for line in opened(change(BASE), tmp_path) if "section 'dir'" not in line
    ]
    assert problems == []
