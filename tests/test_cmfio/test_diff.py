"""What `diff` says, by hand for a small change of everything that can differ."""

from pathlib import Path

import numpy as np
import pytest

from cmfio.diff import Difference, compare
from cmfio.header import TokenizerConfig
from cmfio.reader import open_container
from cmfio.rewrite import encode_tensor, rewrite
from cmfio.writer import write_container

PEERS = Path(__file__).parents[1] / "peers" / "cmf"
FULL = PEERS / "full.cmf"
NORM = "model.mtp.norm.weight"


def compared(a: Path, b: Path) -> Difference:
    with open_container(a) as one, open_container(b) as other:
        return compare(one, other)


def test_a_model_and_its_shards_hold_the_same_tensors() -> None:
    first = PEERS / "shards" / "tiny-00001-of-00003.cmf"
    assert compared(first, first).is_empty
    assert compared(FULL, FULL).same_tensors == 41


def test_values_are_compared_as_f32(tmp_path: Path) -> None:
    with open_container(FULL) as source:
        gains = source.tensor(NORM)
        changed = np.array(gains)
        changed[5] += 0.5
        rewrite(source, tmp_path / "out.cmf", {NORM: changed}, provenance=("zeta", 2))
    found = compared(FULL, tmp_path / "out.cmf")
    (one,) = found.tensors
    assert (one.name, one.what) == (NORM, "f16")
    assert one.largest == pytest.approx(0.5, abs=2**-11)  # halves near 1
    root = float(np.sqrt(np.sum(gains.astype(np.float64) ** 2)))
    assert one.relative == pytest.approx(0.5 / root, rel=2**-10)
    assert found.header == {"provenance.zeta": "1 → 2"}
    assert found.sections == []
    assert found.to_lines()[-1] == "40 tensors are the same, byte for byte"


def test_names_dtypes_shapes_sections_and_header_keys(tmp_path: Path) -> None:
    ones = np.ones((2, 32), np.float32)
    with open_container(PEERS / "align.cmf") as source:
        header = source.header
    here, there = tmp_path / "a.cmf", tmp_path / "b.cmf"
    special = header.model_copy(
        update={"tokenizer_config": TokenizerConfig(bos_token_id=3)}
    )
    cells = [encode_tensor("gone", ones, "f32"), encode_tensor("kept", ones, "q8_row")]
    write_container(here, header, [*cells, encode_tensor("cut", ones, "f16")], vocab=b"{}")
    cells = [encode_tensor("kept", ones, "f16"), encode_tensor("new", ones, "f32")]
    write_container(there, special, [*cells, encode_tensor("cut", ones[:1], "f16")])
    found = compared(here, there)
    told = {one.name: (one.what, one.largest) for one in found.tensors}
    assert told == {
        "gone": ("only in A", None),
        "new": ("only in B", None),
        "kept": ("q8_row 2×32 → f16 2×32", told["kept"][1]),
        "cut": ("f16 2×32 → f16 1×32", None),
    }
    assert told["kept"][1] == pytest.approx(0, abs=2**-10)  # q8_row's scale is a half
    assert found.sections == ["vocab"]
    assert set(found.header) == {"tokenizer_config", "section_hashes"}


def test_equal_checksums_of_other_bytes_are_a_difference(tmp_path: Path) -> None:
    # The checksum is blind to pairs: two equal words for two others.
    with open_container(PEERS / "align.cmf") as source:
        header = source.header
    for name, value in (("a", 1.0), ("b", 2.0)):
        weight = np.full((1, 4), value, np.float32)
        write_container(
            tmp_path / f"{name}.cmf", header, [encode_tensor("w", weight, "f32")]
        )
    with (
        open_container(tmp_path / "a.cmf") as a,
        open_container(tmp_path / "b.cmf") as b,
    ):
        assert a.entries["w"].hash64 == b.entries["w"].hash64
        (one,) = compare(a, b).tensors
    assert one.largest == 1.0
