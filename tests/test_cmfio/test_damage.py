"""Damaged bytes are never given a fresh checksum: all that reads them says so."""

from pathlib import Path

import pytest

from cmfio import reencode
from cmfio.errors import DamagedTensor
from cmfio.identity import model_digests
from cmfio.reader import open_container
from cmfio.rewrite import rewrite
from tests.test_cmfio.command import FULL, cmf

MATRIX = "model.layers.0.mlp.gate_proj.weight"  # q8_2f
NORM = "model.norm.weight"  # f16


def flipped(out: Path, part: str) -> Path:
    """full.cmf with a bit of a tensor or section changed, in a way that still opens."""
    data = bytearray(Path(FULL).read_bytes())
    with open_container(FULL) as model:
        spans = model.files[0].envelope.spans
        if part in model.entries:
            at = spans["data"].offset + model.entries[part].offset + 5
        else:
            at = spans[part].offset + spans[part].length // 2
    data[at] ^= 1
    out.write_bytes(data)
    return out


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (MATRIX, ("convert", "OUT", "--codec", "q8_row")),
        (MATRIX, ("convert", "OUT", "--codec", "keep")),
        (MATRIX, ("convert", "OUT", "--codec", "f16", "--only", "*gate_proj*")),
        (NORM, ("dump", NORM, "OUT")),
        (MATRIX, ("dump", MATRIX, "OUT")),
        (MATRIX, ("extract", MATRIX, "OUT")),
        ("vocab", ("extract", "tokenizer", "OUT")),
        ("vocab", ("convert", "OUT")),
        ("vocab", ("convert", "OUT", "--codec", "f16")),
    ],
)
def test_no_command_passes_damage_on(
    part: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    path, out = flipped(tmp_path / "damaged.cmf", part), str(tmp_path / "out")
    command, *rest = (out if word == "OUT" else word for word in words)
    result = cmf(command, path, *rest)
    assert result.exit_code == 1
    assert part in result.stderr
    assert "damaged" in result.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["damaged.cmf"]


def test_blocks_of_rows_are_checked_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reencode, "BLOCK_BYTES", 4 * 32 * 5)  # five rows
    path = flipped(tmp_path / "damaged.cmf", MATRIX)
    assert cmf("convert", path, tmp_path / "out", "--codec", "q8_row").exit_code == 1


def test_parts_that_are_whole_can_still_be_taken_out(tmp_path: Path) -> None:
    path = flipped(tmp_path / "damaged.cmf", "vocab")
    assert cmf("extract", path, "masks", tmp_path / "masks").exit_code == 0
    assert cmf("dump", path, MATRIX, tmp_path / "w.npy").exit_code == 0


def test_a_damaged_section_stops_a_heal_before_it_begins(tmp_path: Path) -> None:
    path = flipped(tmp_path / "damaged.cmf", "vocab")
    with open_container(path) as source:
        with pytest.raises(DamagedTensor, match="section 'vocab'"):
            model_digests(source)
        with pytest.raises(DamagedTensor, match="section 'vocab'"):
            rewrite(source, tmp_path / "out.cmf", {})
