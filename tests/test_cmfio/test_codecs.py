"""Codecs against the peer: its bytes, its values, its vectors."""

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from cmfio.codecs import blocks
from cmfio.codecs.halves import from_f16, scale16, scale_halves, to_f16
from cmfio.codecs.ladder import rungs
from cmfio.codecs.libm import exp2_of_half, log2_of_half
from cmfio.codecs.registry import CODECS
from cmfio.codecs.words import CARRIED, WORDS
from cmfio.dtypes import BY_NAME
from cmfio.reader import open_container
from tests.oracles import quants

PEERS = Path(__file__).parents[1] / "peers" / "cmf"
F32 = NDArray[np.float32]


def fmix(x: int) -> int:
    mask = 2**64 - 1
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & mask
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & mask
    return x ^ x >> 33


def ternary_pattern(seed: int, rows: int, columns: int) -> F32:
    """The input of ternary.cmf: 0, s, -s with s = 0.125 · (1 + (r + c // 32) % 4)."""
    values = np.empty((rows, columns), np.float32)
    for r, c in np.ndindex(rows, columns):
        place = seed * 0x9E3779B97F4A7C15 + r * 0x100000001B3 + c + 1
        scale = 0.125 * (1 + (r + c // 32) % 4)
        values[r, c] = (0.0, scale, -scale)[fmix(place % 2**64) % 3]
    return values


def values_of(file: str) -> F32 | None:
    """What the peer encoded in a fixture; None if we don't have it, or it isn't finite."""
    if file == "ternary":
        return ternary_pattern(16, 6, 64)
    path = PEERS / f"{file}.npy" / "input.npy"
    if not path.exists():
        return None
    values: F32 = np.load(path)
    return values if np.isfinite(values).all() else None


def encoded() -> Iterator[tuple[str, str]]:
    """Every tensor of the peer that one of its encoders made of finite input we have."""
    for path in sorted(PEERS.glob("*.cmf")):
        if values_of(path.stem) is not None:
            with open_container(path) as container:
                for name in container.entries:
                    yield path.stem, name.removeprefix("t.")


@pytest.mark.parametrize(("file", "encoder"), list(encoded()))
def test_encoding_gives_the_peers_bytes(
    file: str, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, codec = values_of(file), CODECS[encoder]
    assert values is not None
    with open_container(PEERS / f"{file}.cmf") as container:
        expected = bytes(container.payload(f"t.{encoder}"))
        assert container.entries[f"t.{encoder}"].dtype == codec.dtype
    assert codec.shape_problem(values.shape) is None
    assert codec.encode(values) == expected
    assert codec.nbytes(values.shape) in (None, len(expected))
    # Blocks of a row or three groups, by three threads, give the same.
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 96)
    monkeypatch.setattr(blocks, "BLOCK_GROUPS", 3)
    assert codec.encode(values, threads=3) == expected


def test_every_dtype_of_the_peer_is_in_a_fixture() -> None:
    made = {encoder for _, encoder in encoded()}
    assert made >= {dtype for dtype in BY_NAME if dtype not in {*WORDS, *CARRIED}}
    assert made >= {"q1p", "q1t_overlay", "q1t_exact"}  # its further ways


# Rows 0 to 2 are finite but too large for a scale: refused by name elsewhere.
@pytest.mark.parametrize("codec", ["f32", "f16", "q8_row", "q4_tiled", "q1", "q1p"])
def test_overflow_is_the_peers_too(codec: str) -> None:
    values = np.load(PEERS / "overflow_5x64.npy" / "input.npy")[:3]
    with open_container(PEERS / "overflow_5x64.cmf") as container:
        payload = bytes(container.payload(f"t.{codec}"))
    expected = payload[: len(payload) * 3 // 5]
    if codec == "q8_row":
        expected = payload[: 3 * 64] + payload[5 * 64 : 5 * 64 + 6]
    assert CODECS[codec].encode(values) == expected


def test_halves_are_rounded_as_the_peer_does() -> None:
    vectors = json.loads((PEERS / "f16.json").read_text("utf-8"))
    values = np.array([int(f32, 16) for f32, _, _ in vectors], np.uint32).view(np.float32)
    actual = to_f16(values).view(np.uint16)
    wrong = [v for v, bits in zip(vectors, actual, strict=True) if int(v[1], 16) != bits]
    assert wrong == []
    back = from_f16(to_f16(values)).view(np.uint32)
    wrong = [v for v, bits in zip(vectors, back, strict=True) if int(v[2], 16) != bits]
    assert wrong == []


def test_every_half_is_read_exactly() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    expected = halves.astype(np.float32)
    actual = from_f16(halves)
    is_nan = np.isnan(expected)
    assert np.array_equal(np.isnan(actual), is_nan)
    assert actual[~is_nan].tobytes() == expected[~is_nan].tobytes()


finite = st.floats(-60000, 60000, width=32) | st.floats(-(2.0**-13), 2.0**-13, width=32)


@settings(max_examples=150, deadline=None)
@given(arrays(np.float32, 12, elements=finite))
def test_halves_equal_exact_rounding(values: F32) -> None:
    magnitudes = [quants.half_bits(Fraction(abs(float(value)))) for value in values]
    signs = [0x8000 if np.signbit(value) else 0 for value in values]
    expected = [sign | bits for sign, bits in zip(signs, magnitudes, strict=True)]
    assert to_f16(values).view(np.uint16).tolist() == expected
    scales = scale16(np.abs(values))
    assert scales.tolist() == [float(quants.half_value(max(m, 0x400))) for m in magnitudes]
    assert scale_halves(scales).view(np.uint16).tolist() == [
        max(m, 0x400) for m in magnitudes
    ]


def test_scales_past_the_largest_half_are_infinite_and_nan_is_the_floor() -> None:
    values = np.array([65519.99, 65520, np.inf, np.nan, 0], np.float32)
    assert scale_halves(scale16(values)).tolist() == [65504, np.inf, np.inf, 2**-14, 2**-14]


def test_logarithms_and_powers_are_the_peers_at_every_half() -> None:
    vectors = json.loads((PEERS / "libm.json").read_text("utf-8"))
    for key, table in (("log2_of_half", log2_of_half()), ("exp2_of_half", exp2_of_half())):
        listed = {int(half, 16): int(f32, 16) for half, f32 in vectors[key]}
        bits = table.view(np.uint32)
        assert {half: int(bits[half]) for half in listed} == listed
    # Elsewhere Python's f64 functions, which aren't numpy's, rounded to f32.
    halves = np.arange(1 << 15, dtype=np.uint16).view(np.float16).astype(np.float64)
    log2 = np.array([np.float32(math.log2(x)) for x in halves[1:0x7C00]])
    differs = np.flatnonzero(log2 != log2_of_half()[1:0x7C00]) + 1
    assert set(differs) <= {int(half, 16) for half, _ in vectors["log2_of_half"]}


def test_ladders_are_the_peers() -> None:
    vectors = json.loads((PEERS / "ladder.json").read_text("utf-8"))
    for one in vectors:
        params = [int(one[key], 16) for key in ("lo", "step")]
        low, step = np.array(params, np.uint16).view(np.float16)[:, None]
        ladder = rungs(low, step)[0].view(np.uint32)
        assert [f"{bits:08x}" for bits in ladder] == one["q4tp"], one["lo"]
        assert ["00000000", *(f"{bits:08x}" for bits in ladder[:31])] == one["q2tp"]


@pytest.mark.parametrize("encoder", sorted(CODECS))
def test_empty_matrices_are_empty(encoder: str) -> None:
    codec = CODECS[encoder]
    for shape in ((0, 32), (3, 0)):
        if codec.shape_problem(shape) is None:
            payload = codec.encode(np.zeros(shape, np.float32))
            assert codec.nbytes(shape) in (None, len(payload))
            assert codec.decode(payload, shape).shape == shape


def test_the_table_has_the_formats_ids_and_all_can_be_handled() -> None:
    floats = "f32 f16 bf16"
    packed = "q8_row q4_block mix8_4 u8 q4_col vbit q8_2f vbit_ro q4_tiled"
    recent = "q1 q1s q1t q4tp q2tp u32 u64"
    names = f"{floats} {packed} {recent}"
    assert list(BY_NAME)[:19] == names.split()  # 0 to 18; the peer may add some
    assert [dtype.id for dtype in BY_NAME.values()] == list(range(len(BY_NAME)))
    handled = {codec.dtype for codec in CODECS.values()} | set(WORDS) | set(CARRIED)
    assert handled == set(BY_NAME)
    assert all(CODECS[codec.dtype].dtype == codec.dtype for codec in CODECS.values())
