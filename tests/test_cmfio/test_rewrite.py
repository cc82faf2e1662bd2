"""Replacing tensors: what changes, what stays, and what is refused."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cmfio.codecs.registry import CODECS
from cmfio.errors import (
    CmfError,
    DamagedTensor,
    NotEncodable,
    SameFile,
    UnknownCodec,
    UnsupportedFeature,
)
from cmfio.hash64 import hash64
from cmfio.header import Arch, Genome, Header
from cmfio.reader import open_container
from cmfio.rewrite import encode_tensor, rewrite
from cmfio.writer import write_container

PEERS = Path(__file__).parents[1] / "peers" / "cmf"
NORM = "model.mtp.norm.weight"
MATRIX = "model.mtp.eh_proj.weight"
F32 = NDArray[np.float32]


def values(*shape: int) -> F32:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def full(out: Path, replace: dict[str, F32], codec: str = "keep") -> None:
    with open_container(PEERS / "full.cmf") as source:
        rewrite(source, out, replace, codec=codec, provenance=("mtp_heal", {"steps": 2}))


def test_only_the_replaced_tensors_and_the_provenance_change(tmp_path: Path) -> None:
    norm, matrix = values(32), values(32, 64)
    full(tmp_path / "out.cmf", {NORM: norm, MATRIX: matrix}, "q8_row")
    with (
        open_container(PEERS / "full.cmf") as before,
        open_container(tmp_path / "out.cmf") as after,
    ):
        assert list(after.entries) == list(before.entries)
        for name in set(before.entries) - {NORM, MATRIX}:
            assert after.payload(name) == before.payload(name), name
        assert after.entries[NORM].dtype == "f16"
        assert bytes(after.payload(NORM)) == norm.astype("<f2").tobytes()
        assert after.entries[MATRIX].dtype == "q8_row"
        assert bytes(after.payload(MATRIX)) == CODECS["q8_row"].encode(matrix)
        assert (after.masks, after.vocab, after.index) == (
            before.masks,
            before.vocab,
            before.index,
        )
        expected = before.header.to_json()
        assert isinstance(expected["provenance"], dict)
        expected["provenance"] |= {"mtp_heal": {"steps": 2}}
        assert json.dumps(after.header.to_json()) == json.dumps(expected)


def test_keep_stores_in_the_entrys_own_dtype(tmp_path: Path) -> None:
    matrix = values(48, 96)
    with open_container(PEERS / "dtypes_48x96.cmf") as source:
        dtypes = {name: entry.dtype for name, entry in source.entries.items()}
        rewrite(source, tmp_path / "out.cmf", dict.fromkeys(dtypes, matrix))
    with open_container(tmp_path / "out.cmf") as after:
        assert {name: entry.dtype for name, entry in after.entries.items()} == dtypes
        for name, dtype in dtypes.items():
            assert bytes(after.payload(name)) == CODECS[dtype].encode(matrix), name


@pytest.mark.parametrize(
    ("word", "codec"),
    [
        ("profile:Q2TP", "q4tp"),
        ("profile:vbit", "vbit_ro"),
        ("profile:q1_mask", "q1s"),
        ("vbit", "vbit"),
        ("q1p", "q1p"),
        ("q1t_overlay", "q1t_overlay"),
    ],
)
def test_a_word_for_a_codec_is_understood_as_the_converter_does(
    word: str, codec: str, tmp_path: Path
) -> None:
    matrix = values(32, 64)
    full(tmp_path / "out.cmf", {MATRIX: matrix, NORM: values(32)}, word)
    with open_container(tmp_path / "out.cmf") as after:
        assert after.entries[MATRIX].dtype == CODECS[codec].dtype
        assert bytes(after.payload(MATRIX)) == CODECS[codec].encode(matrix)
        assert after.entries[NORM].dtype == "f16"


def test_whole_numbers_cant_be_kept_as_weights(tmp_path: Path) -> None:
    with (
        open_container(PEERS / "nd.cmf") as source,
        pytest.raises(UnknownCodec, match=r"raw\.u8' is stored as u8, which holds no"),
    ):
        rewrite(source, tmp_path / "out.cmf", {"raw.u8": values(3)})


def test_scalars_are_stored_and_refused_like_others(tmp_path: Path) -> None:
    full(tmp_path / "out.cmf", {"scalar": np.array(2.5, np.float32)})
    with open_container(tmp_path / "out.cmf") as after:
        assert after.tensor("scalar").tolist() == 2.5
    with pytest.raises(NotEncodable, match=r"'scalar' as f16: value nan at \[\] is not"):
        full(tmp_path / "out.cmf", {"scalar": np.array(np.nan, np.float32)})


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        ("model.mtp.layers.0.mlp.up_proj.weight", (70, 32), "q4_tiled"),
        ("new.matrix.weight", (4, 32), "q4_tiled"),
        ("new.narrow.weight", (4, 40), "q8_2f"),
        ("new.norm.weight", (32,), "f16"),
        ("new.tiny.weight", (1, 16), "f16"),
        ("model.layers.0.mlp.gate.weight", (8, 32), "f16"),
        ("model.layers.0.mlp.expert_bias", (64,), "f32"),
    ],
)
def test_a_codec_is_for_matrices_as_in_the_converter(
    name: str, shape: tuple[int, ...], dtype: str, tmp_path: Path
) -> None:
    full(tmp_path / "out.cmf", {name: values(*shape)}, "q4_tiled")
    with open_container(tmp_path / "out.cmf") as after:
        assert after.entries[name].dtype == dtype
        assert after.entries[name].shape == shape


def test_new_tensors_stand_behind_the_old_and_keep_makes_them_f16(tmp_path: Path) -> None:
    full(tmp_path / "out.cmf", {"b.weight": values(4, 32), "a.weight": values(4, 32)})
    with open_container(tmp_path / "out.cmf") as after:
        assert list(after.entries)[-2:] == ["b.weight", "a.weight"]
        assert after.entries["a.weight"].dtype == "f16"


def spoiled(value: float) -> F32:
    array = values(32, 64)
    array[3, 5] = value
    return array


@pytest.mark.parametrize(
    ("array", "codec", "error", "text"),
    [
        (
            spoiled(float("nan")),
            "f16",
            NotEncodable,
            r"eh_proj.* nan at \[3, 5\] is not finite",
        ),
        (spoiled(float("-inf")), "f32", NotEncodable, r"-inf at \[3, 5\] is not finite"),
        (spoiled(65520.0), "f16", NotEncodable, r"65520.0 at \[3, 5\] is too large"),
        (spoiled(8.4e6), "q8_row", NotEncodable, r"\[3, 5\] is too large"),
        (spoiled(5e5), "q4_tiled", NotEncodable, r"\[3, 5\] is too large"),
        (spoiled(3.4e38), "bf16", NotEncodable, r"\[3, 5\] is too large"),
        (values(32, 40), "keep", NotEncodable, r"\[32, 40\] as q4tp.*groups of 32"),
        (values(32, 64), "q9", UnknownCodec, r"'q9'.*keep, f32, .*q8_row"),
        (values(32, 64), "q1t_exact", NotEncodable, r"eh_proj.*is not 0 or ±"),
    ],
)
def test_what_cant_be_encoded_is_refused_before_writing(
    array: F32, codec: str, error: type[CmfError], text: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=text):
        full(tmp_path / "out.cmf", {MATRIX: array}, codec)
    assert list(tmp_path.iterdir()) == []


def test_the_largest_values_that_pass_come_back_finite(tmp_path: Path) -> None:
    largest = {
        "f16": 65519.99,
        "q8_row": 8_321_039.0,
        "q4_tiled": 458_639.9,
        "bf16": 3.39e38,
    }
    for codec, value in largest.items():
        full(tmp_path / "out.cmf", {"new.weight": spoiled(value)}, codec)
        with open_container(tmp_path / "out.cmf") as after:
            assert np.isfinite(after.tensor("new.weight")).all(), codec


def test_a_damaged_tensor_isnt_copied(tmp_path: Path) -> None:
    with (
        open_container(PEERS / "invalid" / "verify_tensor_byte.cmf") as source,
        pytest.raises(DamagedTensor, match=r"w\.q4tp"),
    ):
        rewrite(source, tmp_path / "out.cmf", {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("way", ["itself", "dots", "symlink", "hard link", "partial"])
def test_the_output_is_never_the_input(way: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    path = tmp_path / ("out.cmf.partial" if way == "partial" else "model.cmf")
    path.write_bytes((PEERS / "full.cmf").read_bytes())
    out = {
        "itself": path,
        "dots": tmp_path / "sub" / ".." / "model.cmf",
        "partial": tmp_path / "out.cmf",
    }.get(way, tmp_path / "link.cmf")
    if way == "symlink":
        out.symlink_to(path)
    if way == "hard link":
        out.hardlink_to(path)
    with open_container(path) as source, pytest.raises(SameFile, match="is the input"):
        rewrite(source, out, {})
    assert path.read_bytes() == (PEERS / "full.cmf").read_bytes()


def test_no_shard_is_overwritten_either(tmp_path: Path) -> None:
    for shard in (PEERS / "shards").glob("*.cmf"):
        (tmp_path / shard.name).write_bytes(shard.read_bytes())
    with (
        open_container(tmp_path / "tiny-00001-of-00003.cmf") as source,
        pytest.raises(SameFile),
    ):
        rewrite(source, tmp_path / "tiny-00002-of-00003.cmf", {})


def test_masks_of_another_shape_arent_carried_along(tmp_path: Path) -> None:
    with open_container(PEERS / "full.cmf") as source:
        header = source.header.replace_arch(intermediate_size=200)
        with pytest.raises(CmfError, match="mask 'general'"):
            rewrite(source, tmp_path / "out.cmf", {}, header=header)


def word(number: int) -> bytes:
    return struct.pack("<Q", number)


def write_genome(out: Path, arch: Arch, spelled_hash: str) -> None:
    genome = Genome(
        id="g1", generation=1, status="sealed", encoding="f32", trunk_hash=spelled_hash
    )
    header = Header(arch=arch, quant_type="F32", genome=genome)
    weight = encode_tensor("w", np.ones((1, 2), np.float32), "f32")
    write_container(out, header, [weight], vocab=b"{}")


def test_a_genome_opens_only_with_its_own_hash_and_is_never_rewritten(
    tmp_path: Path,
) -> None:
    with open_container(PEERS / "align.cmf") as source:
        arch = source.header.arch
    with pytest.raises(CmfError, match="trunk_hash is '0000'"):
        write_genome(tmp_path / "out.cmf", arch, "0000")
    payload = struct.pack("<ff", 1, 1)
    weight_line = b"w\0\0\0\2" + struct.pack("<QQ", 1, 2) + b"\0" + word(hash64(payload))
    canonical = json.dumps(arch.to_json(), sort_keys=True, separators=(",", ":"))
    canonical = canonical.replace("1e-06", "1e-6")  # the number as the header writes it
    tail = b"\x1e" + canonical.encode() + b"\x1e" + word(hash64(b"{}")) + b"\x1enull"
    right = hash64(b"cmf-trunk-v1\0" + weight_line + tail)
    write_genome(tmp_path / "out.cmf", arch, f"{right:016x}")
    with (
        open_container(tmp_path / "out.cmf") as sealed,
        pytest.raises(UnsupportedFeature, match=r"sealed genome \(g1\).*draft"),
    ):
        rewrite(sealed, tmp_path / "copy.cmf", {})
