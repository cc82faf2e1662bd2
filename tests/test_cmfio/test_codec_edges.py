"""What codecs say of themselves, names and sizes at their ends; worked by hand."""

import pytest

from cmfio.codecs.registry import CODECS

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


@pytest.mark.parametrize("name", CODECS)
def test_a_header_s_word_for_a_codec_is_the_format_s(name: str) -> None:
    assert CODECS[name].label == LABELS.get(name, "VBIT")


@pytest.mark.parametrize(("name", "offsets"), [("vbit", 0), ("vbit_ro", 4 * 4)])
def test_vbit_s_usual_size(name: str, offsets: int) -> None:
    """3 rows of 64: a byte of bits a row, a f16 a group, offsets at either end of rows."""
    mean_bits = {"mean_bits": 5.0}
    codec = type(CODECS[name])(**{**vars(CODECS[name]), **mean_bits})
    assert codec.usual_nbytes((3, 64)) == 3 + 2 * 6 + offsets + 5 * 3 * 64 // 8


def test_q1s_reaches_as_many_weights_as_its_indices() -> None:
    assert CODECS["q1s"].shape_problem((1 << 16, 1 << 16)) is None
    said = CODECS["q1s"].shape_problem((1 << 16, (1 << 16) + 32))
    assert said == "it has more weights than its 32-bit indices reach"
