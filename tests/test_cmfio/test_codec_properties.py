"""Codecs on any matrix: plain loops give the same bytes, and no value is off by more than
its codec's own step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from cmfio.codecs.registry import CODECS
from tests.oracles.codecs import ORACLES, is_ternary

F32 = NDArray[np.float32]
ODD = (2, 33)  # a width that isn't whole groups

weights = st.floats(-4, 4, width=32)
subnormal = st.floats(-(2.0**-126), 2.0**-126, width=32)
element = weights | st.sampled_from([0.0, -0.0, 0.5, -0.5]) | subnormal


KINDS = ("normal", "normal", "drawn", "zero", "constant", "tiny", "outlier")


@st.composite
def matrices(draw: st.DrawFn, columns: st.SearchStrategy[int]) -> F32:
    """Rows of several kinds: normal, drawn one by one, zero, constant, tiny, outlier."""
    shape = draw(st.integers(1, 4)), draw(columns)
    values: F32 = draw(arrays(np.float32, shape, elements=element))
    noise = np.random.default_rng(draw(st.integers(0, 2**32))).standard_normal(shape)
    for r in range(shape[0]):
        kind = draw(st.sampled_from(KINDS))
        if kind in {"normal", "tiny", "outlier"}:
            values[r] = noise[r] * (2.0**-20 if kind == "tiny" else 0.02)
        if kind == "zero":
            values[r] = draw(st.sampled_from([0.0, -0.0]))
        if kind == "constant":
            values[r] = draw(weights)
        if kind == "outlier":
            place = draw(st.integers(0, shape[1] - 1))
            values[r, place] = draw(st.floats(-30000, 30000, width=32))
    return values


@st.composite
def ternaries(draw: st.DrawFn) -> F32:
    """0, s and -s, a scale s for each 32."""
    digits = draw(arrays(np.int8, (3, 2, 32), elements=st.integers(-1, 1)))
    scales = draw(arrays(np.float16, (3, 2, 1), elements=st.floats(-4, 4, width=16)))
    values: F32 = (digits * scales.astype(np.float32)).reshape(3, 64)
    return values


grouped = matrices(st.integers(1, 3).map(lambda groups: 32 * groups))
any_width = matrices(st.integers(1, 70))


def inputs(encoder: str) -> st.SearchStrategy[F32]:
    """Matrices of the shapes and values that a codec stores."""
    if is_ternary(encoder):
        return ternaries()
    return grouped if CODECS[encoder].shape_problem(ODD) else grouped | any_width


def first_difference(actual: bytes, expected: bytes) -> str:
    if len(actual) != len(expected):
        return f"{len(actual)} bytes, not {len(expected)}"
    place = next(i for i, (a, b) in enumerate(zip(actual, expected, strict=True)) if a != b)
    return f"byte {place} of {len(actual)}: {actual[place]:#x}, not {expected[place]:#x}"


def test_every_codec_has_an_oracle() -> None:
    assert set(ORACLES) == set(CODECS), "give the codec a line in tests/oracles/codecs.py"


@pytest.mark.parametrize("encoder", CODECS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_bytes_are_the_plain_loops_and_values_come_back_within_their_step(
    encoder: str, data: st.DataObject
) -> None:
    codec, oracle = CODECS[encoder], ORACLES[encoder]  # no such key: it has no oracle
    values = data.draw(inputs(encoder))
    assert codec.value_problem(values) is None
    payload, expected = bytes(codec.encode(values)), oracle.encode(values)
    assert payload == expected, first_difference(payload, expected)
    error = np.abs(codec.decode(payload, values.shape) - values)
    slack = oracle.slack(payload, values)
    assert (error <= slack).all(), np.argwhere(error > slack)[0]


@settings(max_examples=30, deadline=None)
@given(values=grouped)
def test_diffused_signs_keep_the_sum_of_a_row(values: F32) -> None:
    decoded = CODECS["q1p"].decode(CODECS["q1p"].encode(values), values.shape)
    drift = np.cumsum(decoded.astype(np.float64) - values.astype(np.float64), axis=1)
    # The carry after a sign is at most the scale, or what it was plus the value beyond it.
    bound = np.abs(decoded).max(axis=1) + np.abs(values).sum(axis=1)
    assert (np.abs(drift).max(axis=1) <= bound * (1 + 2.0**-10) + 2.0**-13).all()


@settings(max_examples=50, deadline=None)
@given(values=arrays(np.float32, (2, 3, 5), elements=st.floats(-60000, 60000, width=32)))
def test_floats_come_back_within_their_precision(values: F32) -> None:
    # 24, 11 and 8 significant bits; the smallest step of f16 is 2^-24, of bf16 2^-133.
    for name, bits, floor in (
        ("f32", 60, 0.0),
        ("f16", 11, 2.0**-24),
        ("bf16", 8, 2.0**-133),
    ):
        decoded = CODECS[name].decode(CODECS[name].encode(values), values.shape)
        bound = np.maximum(np.abs(values.astype(np.float64)) * 2.0**-bits, floor / 2)
        assert (np.abs(decoded.astype(np.float64) - values) <= bound).all(), name


@pytest.mark.parametrize("encoder", sorted(CODECS))
def test_threads_change_no_byte_and_no_value(encoder: str) -> None:
    codec = CODECS[encoder]
    # 1.6 million values: four blocks, the last one ragged.
    digits = np.random.default_rng(7).integers(-1, 2, (1_601, 1_024)).astype(np.float32)
    noise = np.random.default_rng(8).standard_normal(digits.shape).astype(np.float32)
    values = digits if is_ternary(encoder) else noise
    payload = codec.encode(values)
    assert codec.encode(values, threads=3) == payload
    alone = codec.decode(payload, values.shape)
    out = np.full(values.shape, np.nan, np.float32)
    assert codec.decode(payload, values.shape, out=out, threads=3) is out
    assert np.array_equal(out, alone)
