"""Codecs: the peer's bytes, and plain loops on values the fixtures don't have."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cmfio.codecs.halves import to_f16
from cmfio.codecs.registry import CODECS
from cmfio.dtypes import BY_NAME
from cmfio.reader import open_container
from tests.oracles import quants

PEERS = Path(__file__).parents[1] / "peers" / "cmf"
# Codecs that store any finite values of the fixtures' shapes, wherever they fit.
FILES = ("dtypes_48x96", "dtypes_7x64", "dtypes_5x40", "overflow_5x64")
FINITE_ROWS = {"overflow_5x64": 3}  # the rest holds inf and NaN, which we refuse


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("codec", sorted(CODECS))
def test_encoding_gives_the_peers_bytes(file: str, codec: str) -> None:
    values = np.load(PEERS / f"{file}.npy" / "input.npy")
    rows = FINITE_ROWS.get(file, len(values))
    with open_container(PEERS / f"{file}.cmf") as container:
        name = f"t.{codec}"
        if name not in container.entries:
            pytest.skip(f"{file} has no {codec}")
        expected = first_rows(bytes(container.payload(name)), codec, values.shape, rows)
    with np.errstate(over="ignore"):
        actual = CODECS[codec].encode(np.ascontiguousarray(values[:rows]))
    assert actual == expected


def first_rows(payload: bytes, codec: str, shape: tuple[int, int], rows: int) -> bytes:
    if codec != "q8_row":
        return payload[: len(payload) * rows // shape[0]]
    steps = shape[0] * shape[1]
    return payload[: rows * shape[1]] + payload[steps : steps + 2 * rows]


def test_halves_are_rounded_as_the_peer_does() -> None:
    vectors = json.loads((PEERS / "f16.json").read_text("utf-8"))
    values = np.array([int(f32, 16) for f32, _, _ in vectors], np.uint32).view(np.float32)
    actual = to_f16(values).view(np.uint16)
    wrong = [v for v, bits in zip(vectors, actual, strict=True) if int(v[1], 16) != bits]
    assert wrong == []


finite = st.floats(-60000, 60000, width=32) | st.floats(-(2.0**-13), 2.0**-13, width=32)


@settings(max_examples=150, deadline=None)
@given(arrays(np.float32, 12, elements=finite))
def test_halves_equal_exact_rounding(values: np.ndarray) -> None:
    magnitudes = [quants.half_bits(Fraction(abs(float(value)))) for value in values]
    signs = [0x8000 if np.signbit(value) else 0 for value in values]
    expected = [sign | bits for sign, bits in zip(signs, magnitudes, strict=True)]
    assert to_f16(values).view(np.uint16).tolist() == expected


@settings(max_examples=40, deadline=None)
@given(arrays(np.float32, (2, 32), elements=finite))
def test_q8_row_and_q4_tiled_equal_plain_loops(values: np.ndarray) -> None:
    assert CODECS["q8_row"].encode(values) == quants.q8_row(values.tolist())
    flat = values.reshape(-1).tolist()
    assert CODECS["q4_tiled"].encode(values) == quants.q4_tiled(flat)


def test_large_matrices_equal_plain_loops_across_blocks() -> None:
    # 70,400 values: more than one block of either codec, the last one ragged.
    values = np.random.default_rng(5).standard_normal((1100, 64)).astype(np.float32)
    assert CODECS["q8_row"].encode(values) == quants.q8_row(values.tolist())
    flat = values.reshape(-1).tolist()
    assert CODECS["q4_tiled"].encode(values) == quants.q4_tiled(flat)


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_empty_matrices_are_empty(codec: str) -> None:
    for shape in ((0, 32), (3, 0)):
        payload = CODECS[codec].encode(np.zeros(shape, np.float32))
        assert len(payload) == BY_NAME[codec].nbytes(shape)
        assert CODECS[codec].decode(memoryview(payload), shape).shape == shape


def test_the_table_has_the_formats_19_ids() -> None:
    floats = "f32 f16 bf16"
    packed = "q8_row q4_block mix8_4 u8 q4_col vbit q8_2f vbit_ro q4_tiled"
    recent = "q1 q1s q1t q4tp q2tp u32 u64"
    names = f"{floats} {packed} {recent}"
    assert [dtype.id for dtype in BY_NAME.values()] == list(range(19))
    assert list(BY_NAME) == names.split()
