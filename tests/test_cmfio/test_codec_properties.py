"""Codecs on any matrix: plain loops give the same bytes, and no value is off by more than
its codec's own step."""

import functools
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from cmfio.codecs.registry import CODECS
from tests.oracles import packed, quants, signs

F32 = NDArray[np.float32]
SIZED_BY_VALUES = {"vbit", "vbit_ro", "q1s"}

ORACLES: Mapping[str, Callable[[F32], bytes]] = {
    "q8_row": lambda values: quants.q8_row(values.tolist()),
    "q8_2f": packed.q8_2f,
    "q4_block": packed.q4_block,
    "q4_tiled": lambda values: quants.q4_tiled(values.reshape(-1).tolist()),
    "q4tp": packed.q4tp,
    "q2tp": packed.q2tp,
    "vbit": functools.partial(packed.vbit, with_offsets=False),
    "vbit_ro": functools.partial(packed.vbit, with_offsets=True),
    "q1": signs.q1,
    "q1p": functools.partial(signs.diffused, outlier=float("inf")),
    "q1s": signs.q1s,
    "q1t": functools.partial(signs.q1t, share=0.0),
    "q1t_overlay": functools.partial(signs.q1t, share=0.01),
}
UNGROUPED = ("q8_row", "q8_2f", "q4_block")

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


grouped = matrices(st.integers(1, 3).map(lambda groups: 32 * groups))
any_width = matrices(st.integers(1, 70))


def first_difference(actual: bytes, expected: bytes) -> str:
    assert len(actual) == len(expected)
    place = next(i for i, (a, b) in enumerate(zip(actual, expected, strict=True)) if a != b)
    return f"byte {place} of {len(actual)}: {actual[place]:#x}, not {expected[place]:#x}"


@pytest.mark.parametrize("encoder", ORACLES)
@settings(max_examples=25, deadline=None)
@given(values=grouped)
def test_bytes_equal_plain_loops(encoder: str, values: F32) -> None:
    actual, expected = bytes(CODECS[encoder].encode(values)), ORACLES[encoder](values)
    assert actual == expected, first_difference(actual, expected)


@pytest.mark.parametrize("encoder", UNGROUPED)
@settings(max_examples=25, deadline=None)
@given(values=any_width)
def test_bytes_equal_plain_loops_at_any_width(encoder: str, values: F32) -> None:
    actual, expected = bytes(CODECS[encoder].encode(values)), ORACLES[encoder](values)
    assert actual == expected, first_difference(actual, expected)


@settings(max_examples=40, deadline=None)
@given(digits=arrays(np.int8, (3, 64), elements=st.integers(-1, 1)), scale=weights)
def test_exact_ternary_equals_plain_loops_and_loses_nothing(
    digits: NDArray[np.int8], scale: float
) -> None:
    values = digits.astype(np.float32) * np.float16(scale).astype(np.float32)
    codec = CODECS["q1t_exact"]
    assert codec.value_problem(values) is None
    payload = bytes(codec.encode(values))
    assert payload == signs.q1t_exact(values)
    assert np.array_equal(codec.decode(payload, values.shape), values)


def halves(payload: bytes, first: int, *shape: int) -> F32:
    count = int(np.prod(shape))
    return np.frombuffer(payload, "<f2", count, first).astype(np.float32).reshape(shape)


def by_group(scales: F32) -> F32:
    return np.repeat(scales, 32, axis=-1)


def steps_of(encoder: str, payload: bytes, values: F32) -> F32:
    """The distance between neighbouring levels at each value, read from the payload."""
    (rows, columns), n = values.shape, values.size
    if encoder == "q8_row":
        return np.broadcast_to(halves(payload, n, rows, 1), values.shape)
    if encoder == "q8_2f":
        return halves(payload, n, rows, 1) * halves(payload, n + 2 * rows, 1, columns)
    if encoder == "q4_block":
        return by_group(halves(payload, n // 2, rows, columns // 32))
    if encoder == "q4_tiled":
        tiles = np.frombuffer(payload, np.uint8).reshape(rows, columns // 32, 18)
        return by_group(halves(tiles[:, :, :2].tobytes(), 0, rows, columns // 32))
    assert encoder in {"vbit", "vbit_ro"}
    return by_group(halves(payload, rows, rows, columns // 32))


@pytest.mark.parametrize(
    "encoder", ["q8_row", "q8_2f", "q4_block", "q4_tiled", "vbit", "vbit_ro"]
)
@settings(max_examples=30, deadline=None)
@given(values=grouped)
def test_values_come_back_within_half_a_step(encoder: str, values: F32) -> None:
    payload = bytes(CODECS[encoder].encode(values))
    error = np.abs(CODECS[encoder].decode(payload, values.shape) - values)
    # Half a step; beyond the outermost level only where the scale was rounded down to f16
    # (2^-11), and a few roundings of f32 (2^-22).
    bound = 0.5 * steps_of(encoder, payload, values) + np.abs(values) * (
        2.0**-11 + 2.0**-22
    )
    assert (error <= bound).all(), np.argwhere(error > bound)[0]


@pytest.mark.parametrize(("encoder", "top"), [("q4tp", 7), ("q2tp", 1.5)])
@settings(max_examples=30, deadline=None)
@given(values=grouped)
def test_two_planes_use_the_nearest_level_of_each_group(
    encoder: str, top: float, values: F32
) -> None:
    payload = bytes(CODECS[encoder].encode(values))
    decoded = CODECS[encoder].decode(payload, values.shape).reshape(-1, 32)
    for group, back in zip(values.reshape(-1, 32), decoded, strict=True):
        levels = np.unique(np.abs(back))
        step = float(np.diff(np.unique(back)).min()) if len(np.unique(back)) > 1 else None
        if step is None or not levels[-1]:
            continue
        # Levels are whole or odd half steps apart; clipped values sit on the outermost one.
        inside = np.abs(group) <= top * step
        error = np.abs(back - group)[inside]
        assert (error <= 0.5 * step * (1 + 2.0**-20)).all()


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
    values = digits if encoder == "q1t_exact" else noise
    payload = codec.encode(values)
    assert codec.encode(values, threads=3) == payload
    alone = codec.decode(payload, values.shape)
    out = np.full(values.shape, np.nan, np.float32)
    assert codec.decode(payload, values.shape, out=out, threads=3) is out
    assert np.array_equal(out, alone)
