"""GGUF files that are none, or none whole: told in our words, with the place."""

import struct
from pathlib import Path

import pytest

from cmfio.errors import CmfError
from cmfio.gguf import import_gguf
from tests.gguf_files import HEAD_DIM, HIDDEN, KV_HEADS, write_gguf


def refusal(folder: Path, data: bytes) -> str:
    """What an import says of a file of these bytes, in our words alone."""
    (folder / "bad.gguf").write_bytes(data)
    with pytest.raises(CmfError) as caught:
        import_gguf(folder / "bad.gguf", folder / "bad.cmf")
    said = str(caught.value)
    assert said.startswith(f"{folder / 'bad.gguf'}: ")
    for word in ("index", "axis", "reshape", "size 0", "cannot", "dtype", "array"):
        assert word not in said
    assert not (folder / "bad.cmf").exists()
    return said


@pytest.mark.parametrize("data", [b"", b"GGU", b"not a gguf at all", bytes(range(256)) * 9])
def test_garbage_is_told_by_its_beginning(tmp_path: Path, data: bytes) -> None:
    said = refusal(tmp_path, data)
    assert f"is no GGUF file, these begin with 'GGUF' and it with {data[:4]!r}" in said


def test_another_version_is_named(tmp_path: Path) -> None:
    said = refusal(tmp_path, b"GGUF" + struct.pack("<IQQ", 9, 0, 0))
    assert "is GGUF of version 9, known are 2 and 3" in said


@pytest.mark.parametrize("tail", [b"", b"\xff" * 64, bytes(range(64, 128))])
def test_garbage_behind_a_good_beginning(tmp_path: Path, tail: bytes) -> None:
    assert "again" in refusal(tmp_path, b"GGUF" + struct.pack("<I", 3) + tail)


def test_a_file_without_a_key_is_no_model(tmp_path: Path) -> None:
    said = refusal(tmp_path, b"GGUF" + struct.pack("<IQQ", 3, 0, 0) + bytes(48))
    assert "names no architecture (key 'general.architecture')" in said


def test_a_list_that_claims_more_than_the_file_is_not_walked(tmp_path: Path) -> None:
    key = struct.pack("<Q", 1) + b"k"
    numbers = struct.pack("<IIQ", 9, 4, 1 << 60)  # an array of so many u32
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
    assert "the file ends at 49; it was cut short" in refusal(
        tmp_path, head + key + numbers
    )


def test_a_file_cut_anywhere_is_told_so(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    whole = (tmp_path / "tiny.gguf").read_bytes()
    for end in (8, 9, 31, 100, 1000, 3000, 5000, len(whole) // 2, len(whole) - 32):
        said = refusal(tmp_path, whole[:end])
        assert f"the file ends at {end:,}; it was cut short or is damaged, copy or" in said
    assert "tensor 'blk.1.ffn_down.weight' at byte " in said


@pytest.mark.parametrize("offset", [1 << 20, (1 << 64) - 32])
def test_an_offset_outside_the_file_is_told_with_its_tensor(
    tmp_path: Path, offset: int
) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    data = bytearray((tmp_path / "tiny.gguf").read_bytes())
    name = b"blk.1.attn_k.weight"  # then two dimensions, the type, and the offset
    place = data.index(name) + len(name) + 4 + 16 + 4
    data[place : place + 8] = struct.pack("<Q", offset)
    said = refusal(tmp_path, bytes(data))
    assert "tensor 'blk.1.attn_k.weight' at byte " in said
    assert f"needs {KV_HEADS * HEAD_DIM * HIDDEN * 4:,} bytes, the file ends at" in said


def test_heads_that_do_not_divide_a_matrix_are_told(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    data = (tmp_path / "tiny.gguf").read_bytes()
    key = b"llama.attention.head_count"
    place = data.index(key) + len(key) + 4
    odd = data[:place] + struct.pack("<I", 7) + data[place + 4 :]
    assert "tensor 'blk.0.attn_q.weight' has the shape [64, 64], which 7 heads" in refusal(
        tmp_path, odd
    )
