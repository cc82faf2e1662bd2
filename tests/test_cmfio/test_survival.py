"""What a rewrite must leave alone, also in files that a peer left in an odd state."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from cmfio.hash64 import hash64
from cmfio.listing import summarise
from cmfio.reader import Container, open_container
from cmfio.rewrite import rewrite
from cmfio.verify import verify

PEERS = Path(__file__).parents[1] / "peers" / "cmf"
FULL = (PEERS / "full.cmf").read_bytes()
NORM = "model.mtp.norm.weight"
# Where the envelope has what, written out again here.
FEATURES_AT, HEADER_AT, DIR_AT, DATA_AT = 0x0C, 0x10, 0x20, 0x30
VOCAB_AT, HASHES_AT = 0x50, 0x70


def pair(data: bytes, at: int) -> tuple[int, int]:
    first, second = struct.unpack_from("<QQ", data, at)
    return first, second


def with_head(data: bytes, header: bytes, directory: bytes) -> bytes:
    """Header and directory at the end of the file, the envelope saying so."""
    grown = bytearray(data)
    for at, section in ((HEADER_AT, header), (DIR_AT, directory)):
        struct.pack_into("<QQ", grown, at, len(grown), len(section))
        grown += section
    struct.pack_into("<QQ", grown, HASHES_AT, hash64(header), hash64(directory))
    return bytes(grown)


def head_of(data: bytes) -> tuple[bytes, bytes]:
    parts = []
    for at in (HEADER_AT, DIR_AT):
        offset, length = pair(data, at)
        parts.append(data[offset : offset + length])
    return parts[0], parts[1]


def stored(container: Container) -> dict[str, tuple[object, ...]]:
    """Everything about each tensor but where it lies, its bytes included."""
    return {
        name: (entry.dtype, entry.shape, entry.hash64, bytes(container.payload(name)))
        for name, entry in container.entries.items()
    }


def header_bytes(path: Path) -> bytes:
    return head_of(path.read_bytes())[0]


def tail_appended(payload: bytes) -> bytes:
    """full.cmf with another NORM, as the peer's tool appends it: nothing of it moves."""
    header, directory = head_of(FULL)
    seen = json.loads((PEERS / "full.info.json").read_text("utf-8"))["tensors"]
    names = [tensor["name"] for tensor in seen]
    data_offset, _ = pair(FULL, DATA_AT)
    grown = bytearray(FULL)
    grown += bytes(-(len(grown) - data_offset) % 64)
    place = len(grown) - data_offset
    grown += payload
    struct.pack_into("<Q", grown, DATA_AT + 8, place + len(payload))
    changed = bytearray(directory)
    record = 16 + 56 * names.index(NORM)
    struct.pack_into("<QQQ", changed, record + 32, place, len(payload), hash64(payload))
    said = header.replace(b'"tool":"cortiq convert"', b'"tool":"cortiq append "')
    assert said != header
    return with_head(bytes(grown), said, bytes(changed))


def test_a_tail_appended_file_reads_right_and_comes_out_ordinary(tmp_path: Path) -> None:
    gains = np.linspace(0.5, 1.5, 32, dtype="<f2")
    path = tmp_path / "appended.cmf"
    path.write_bytes(tail_appended(gains.tobytes()))
    with open_container(path) as after, open_container(PEERS / "full.cmf") as before:
        assert verify(after) == []
        np.testing.assert_array_equal(after.tensor(NORM), gains.astype(np.float32))
        assert "append" in json.dumps(after.header.provenance)
        # The sections lie inside the data's range now, between two payloads.
        assert (after.masks, after.vocab, after.index) == (
            before.masks,
            before.vocab,
            before.index,
        )
        expected = stored(before) | {NORM: stored(after)[NORM]}
        assert stored(after) == expected
        rewrite(after, tmp_path / "out.cmf", {})
    with open_container(tmp_path / "out.cmf") as ordinary:
        assert stored(ordinary) == expected
        assert verify(ordinary) == []
    assert (tmp_path / "out.cmf").stat().st_size == len(FULL)


def test_all_but_the_replaced_tensor_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    with open_container(PEERS / "full.cmf") as before:
        rewrite(before, tmp_path / "out.cmf", {NORM: np.full(32, 1.25, np.float32)})
        kept = stored(before)
        sections = [before.masks, before.vocab, before.index]
        with open_container(tmp_path / "out.cmf") as after:
            assert stored(after) == kept | {NORM: stored(after)[NORM]}
            assert stored(after)[NORM][3] == b"\x00\x3d" * 32  # 1.25 as a half
            assert [after.masks, after.vocab, after.index] == sections
    assert header_bytes(tmp_path / "out.cmf") == head_of(FULL)[0]


STRANGE = (
    b'{"b":1E5,"a":[-0.0,1e-7,12345678901234567890123,"\xc3\xa9\\n",{"":null}],"b2":[[]],'
    b'"0":1.10}'
)


@pytest.mark.parametrize(
    "before",
    [b'"format"', b'"arch_name"', b'"eos_token_ids"', b'"id"', b'"masks":"', b'"alpha"'],
)
def test_unknown_keys_and_values_survive_wherever_they_stand(
    before: bytes, tmp_path: Path
) -> None:
    header, directory = head_of(FULL)
    strange = header.replace(before, b'"x-new":' + STRANGE + b"," + before, 1)
    assert len(strange) > len(header)
    path = tmp_path / "strange.cmf"
    path.write_bytes(with_head(FULL, strange, directory))
    with open_container(path) as source:
        rewrite(source, tmp_path / "out.cmf", {})
    assert header_bytes(tmp_path / "out.cmf") == strange


def test_a_forgotten_skill_bit_is_noted_and_set_again(tmp_path: Path) -> None:
    original = (PEERS / "skill_file.cmf").read_bytes()
    forgetful = bytearray(original)
    bits = struct.unpack_from("<I", original, FEATURES_AT)[0]
    assert bits & 1 << 6
    struct.pack_into("<I", forgetful, FEATURES_AT, bits & ~(1 << 6))
    (tmp_path / "skill.cmf").write_bytes(forgetful)
    with open_container(tmp_path / "skill.cmf") as source:
        assert summarise(source).notes == [
            "a skill for another model, though the envelope doesn't say so"
        ]
        rewrite(source, tmp_path / "out.cmf", {})
    assert (tmp_path / "out.cmf").read_bytes() == original


def test_a_hash_of_a_section_that_isnt_there_is_noted_and_not_passed_on(
    tmp_path: Path,
) -> None:
    stale = bytearray(FULL)
    struct.pack_into("<QQ", stale, VOCAB_AT, 0, 0)
    (tmp_path / "stale.cmf").write_bytes(stale)
    with open_container(tmp_path / "stale.cmf") as source:
        assert source.vocab is None
        assert verify(source) == []  # as the peer: nothing that is there is damaged
        assert "a hash of vocab is recorded" in summarise(source).notes[0]
        rewrite(source, tmp_path / "out.cmf", {})
    hashes = json.loads(header_bytes(tmp_path / "out.cmf"))["section_hashes"]
    assert list(hashes) == ["masks", "index"]
