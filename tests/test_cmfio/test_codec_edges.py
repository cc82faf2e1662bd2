"""What codecs say of themselves, names and sizes at their ends; worked by hand."""

import numpy as np
import pytest

from cmfio.codecs.registry import CODECS, decode_payload
from cmfio.errors import UnknownCodec

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
        with pytest.raises(UnknownCodec, match=r"w: .* of shape \[64\] has no meaning"):
            decode_payload(memoryview(payload), dtype, (64,), "w")


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
