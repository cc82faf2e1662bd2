"""What codecs say of themselves, names and sizes at their ends; worked by hand."""

import numpy as np
import pytest

from cmfio.codecs.halves import to_f16
from cmfio.codecs.libm import exp2_of_half, log2_of_half
from cmfio.codecs.outliers import nth_smallest
from cmfio.codecs.registry import CODECS, decode_payload
from cmfio.codecs.words import WORDS
from cmfio.dtypes import dtype_named
from cmfio.errors import UnknownCodec
from tests.oracles.codecs import ORACLES

LABELS = {
    "f32": "F32",
    "f16": "F16",
    "bf16": "BF16",
    "q8_row": "Q8_ROW",
    "q8_2f": "Q8_2F",
    "q4_block": "Q4_BLOCK",
    "q4_tiled": "Q4_BLOCK",
    "q4tp": "Q4_BLOCK",
    "q2tp": "Q4_BLOCK",
}

# The largest half (below 65520), times the most steps a scale stands for.
LIMITS = {
    "f16": 65520,
    "q8_row": 127 * 65520,
    "q8_2f": 65520,
    "q4_block": 7 * 65520,
    "q4_tiled": 7 * 65520,
    "q4tp": 7 * 65520,
    "q2tp": 1.5 * 65520,
    "vbit": 3 * 65520,
    "vbit_ro": 3 * 65520,
    "q1t": 65520 / 2,
    "q1t_overlay": 65520 / 2,
    "q1t_exact": 65520,
}
DTYPES = [name for name, codec in CODECS.items() if codec.dtype == name]
READ_FLAT = {"f32", "f16", "bf16", "q4_block", "q4_tiled", "q1"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_vector_is_read_where_groups_run_on_and_has_no_meaning_elsewhere(
    dtype: str,
) -> None:
    values = np.where(np.arange(64).reshape(2, 32) % 3, 1, -1).astype(np.float32)
    payload = CODECS[dtype].encode(values)
    if dtype in READ_FLAT:
        matrix = decode_payload(memoryview(payload), dtype, (2, 32), "w")
        assert (
            decode_payload(memoryview(payload), dtype, (64,), "w").tolist()
            == matrix.ravel().tolist()
        )
    else:
        size = dtype_named(dtype).nbytes((64,)) or 0  # of so many rows of one column
        for given in (payload, bytes(size)):
            with pytest.raises(UnknownCodec, match=r"w: .* of shape \[64\] has no meaning"):
                decode_payload(memoryview(given), dtype, (64,), "w")


@pytest.mark.parametrize("name", CODECS)
def test_a_header_s_word_for_a_codec_is_the_format_s(name: str) -> None:
    assert CODECS[name].label == LABELS.get(name, "VBIT")


@pytest.mark.parametrize(("name", "offsets"), [("vbit", 0), ("vbit_ro", 4 * 4)])
def test_vbit_s_usual_size(name: str, offsets: int) -> None:
    """3 rows of 64: a byte of bits a row, a f16 a group, offsets at either end of rows."""
    mean_bits = {"mean_bits": 5.0}
    codec = type(CODECS[name])(**{**vars(CODECS[name]), **mean_bits})
    assert codec.usual_nbytes((3, 64)) == 3 + 2 * 6 + offsets + 5 * 3 * 64 // 8


@pytest.mark.parametrize("name", LIMITS)
def test_the_largest_value_of_each_codec(name: str) -> None:
    assert CODECS[name].limit == LIMITS[name]


def test_q1s_s_usual_size() -> None:
    """2 × 64 signs in four tiles of 6 bytes, a count, one of 128 kept: an index, a f16."""
    assert CODECS["q1s"].usual_nbytes((2, 64)) == 4 * 6 + 4 + 1 * 6


def test_the_nan_next_to_infinity_is_one() -> None:
    nan = np.array([0x7F800001, 0xFF800001], np.uint32).view(np.float32)
    assert to_f16(nan).view(np.uint16).tolist() == [0x7E00, 0xFE00]


def test_words_outlive_what_they_were_read_from() -> None:
    payload = bytearray([1, 2, 3])
    words = WORDS["u8"].decode(payload, (3,))
    payload[0] = 9
    assert words.tolist() == [1, 2, 3]


def test_the_nth_smallest_of_neighbours() -> None:
    bits = np.array([7, 3, 6, 2, 5, 4], np.uint32) + np.float32(0.25).view(np.uint32)
    values = bits.view(np.float32) * np.array([1, -1] * 3, np.float32)
    found = [nth_smallest(values, rank) for rank in range(6)]
    assert found == sorted(np.abs(values).tolist())


@pytest.mark.parametrize("name", ["q4tp", "q2tp"])
@pytest.mark.parametrize("octaves", [0.5, 2, 6, 15, 24])
def test_ladders_of_rows_whose_groups_differ(name: str, octaves: float) -> None:
    """Groups of one magnitude, or of one large value among small ones, and dead ones."""
    draw = np.random.default_rng(int(10 * octaves))
    magnitude = 2.0 ** draw.uniform(-9 - octaves / 2, -9 + octaves / 2, (24, 6, 1))
    signs = draw.choice([-1.0, 1.0], (24, 6, 32))
    shape = np.ones((24, 6, 32))
    shape[:, 1::2] = draw.uniform(0, 0.3, (24, 3, 32))
    shape[:, 1::2, 5], signs[:, 1::2, 5] = 1, -1
    shape[:, 2] = 0
    values = (magnitude * signs * shape).astype(np.float32).reshape(24, -1)
    payload = bytes(CODECS[name].encode(values))
    assert payload == ORACLES[name].encode(values)
    read = CODECS[name].decode(payload, values.shape)
    assert (np.abs(read - values) <= ORACLES[name].slack(payload, values)).all()


def test_q2tp_seeks_a_step_two_rungs_up_and_no_further() -> None:
    """Large values among many of one size: with three rungs another step would win."""
    groups = [
        (1.25, 3, 0.39),
        (1.75, 2, 0.49),
        (1.375, 3, 0.44),
        (0.75, 5, 0.29),
        (1.875, 5, 0.39),
    ]
    row = [
        2.0**-octaves * (1 if place < large else rest)
        for octaves, large, rest in groups
        for place in range(32)
    ]
    values = np.array([row], np.float32)
    assert bytes(CODECS["q2tp"].encode(values)) == ORACLES["q2tp"].encode(values)


def test_a_dead_group_of_q2tp_adds_nothing_to_a_row_s_error() -> None:
    """Weights so small that an error of 1 beside theirs would hide them."""
    draw = np.random.default_rng(7)
    values = (
        3e-4 * draw.standard_normal((12, 4, 32)) * 2.0 ** draw.uniform(-3, 0, (12, 4, 1))
    )
    values[:, 0] = 0
    rows = values.astype(np.float32).reshape(12, -1)
    assert bytes(CODECS["q2tp"].encode(rows)) == ORACLES["q2tp"].encode(rows)


def test_q1t_exact_takes_what_is_a_thousandth_off_and_no_more() -> None:
    values = np.zeros((1, 64), np.float32)
    values[0, 32:35] = 1000, -999, 1000
    assert CODECS["q1t_exact"].value_problem(values) is None
    values[0, 34] = 998.99
    problem = CODECS["q1t_exact"].value_problem(values)
    assert problem is not None
    assert problem.place == 34


def test_q1t_s_borders_belong_to_what_lies_above_them() -> None:
    """Mean magnitude 10, with 5s, at half the scale, and 7s, at 0.7 of the mean."""
    draw = np.random.default_rng(5)
    groups = draw.choice(
        [0, 5, 7, 10, 14, 20, 30], (4000, 32), p=[0.1, 0.3, 0.3, 0.1, 0.1, 0.05, 0.05]
    )
    groups[:, 0] += 320 - groups.sum(axis=1)
    groups = groups[(groups[:, 0] >= 0) & (groups[:, 0] < 60)][:96]
    assert len(groups) == 96
    values = (
        (groups * draw.choice([-1, 1], groups.shape)).astype(np.float32).reshape(-1, 64)
    )
    assert bytes(CODECS["q1t"].encode(values)) == ORACLES["q1t"].encode(values)


def test_where_both_ways_of_q1t_err_alike_the_first_is_taken() -> None:
    """Scale 1 with 30 digits, or 1.5 with 15: each misses by 15 · 0.625² and the rest."""
    values = np.array([[1.5] * 15 + [0.625] * 15 + [0.0625] * 2 + [1] * 32], np.float32)
    payload = bytes(CODECS["q1t"].encode(values))
    assert payload == ORACLES["q1t"].encode(values)
    # Both groups' scale 1, fitted to (31.875 + 32) / 62; 30 digits are six bytes of ones.
    scale = np.frombuffer(payload[:2], "<f2")[0]
    assert (scale, payload[2:9]) == (np.float16(63.875 / 62), bytes([121] * 6 + [0]))


@pytest.mark.parametrize("kept", [32, 31])
def test_a_group_that_q1t_overlay_keeps_whole_or_but_for_one(kept: int) -> None:
    values = np.random.default_rng(6).uniform(-1, 1, (2, 1664)).astype(np.float32)
    values[1, 320 : 320 + kept] *= 0.1
    values[1, 320 : 320 + kept] += np.where(values[1, 320 : 320 + kept] > 0, 9, -9)
    payload = bytes(CODECS["q1t_overlay"].encode(values))
    assert payload == ORACLES["q1t_overlay"].encode(values)
    tile = payload[9 * (52 + 10) :][:9]
    assert (tile[2:] == bytes(7)) == (kept == 32)


def test_q1t_takes_as_many_columns_as_16_bits_can_say() -> None:
    assert CODECS["q1t"].shape_problem((1, 1 << 16)) is None


def test_tables_of_logarithms_are_of_each_half_once_and_nobody_s_to_change() -> None:
    assert (log2_of_half().shape, exp2_of_half().shape) == ((1 << 15,), (1 << 16,))
    for table in (log2_of_half(), exp2_of_half()):
        assert not table.flags.writeable


def test_q1s_reaches_as_many_weights_as_its_indices() -> None:
    assert CODECS["q1s"].shape_problem((1 << 16, 1 << 16)) is None
    said = CODECS["q1s"].shape_problem((1 << 16, (1 << 16) + 32))
    assert said == "it has more weights than its 32-bit indices reach"
