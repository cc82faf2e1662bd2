"""Tensors encoded anew: which, in what, and that all others stay; sizes told in advance."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cmfio import reencode
from cmfio.codecs.registry import CODECS
from cmfio.codecs.rows import decodes_by_rows, encodes_by_rows
from cmfio.convert import convert
from cmfio.diff import compare
from cmfio.dtypes import BY_NAME
from cmfio.errors import MissingTensor, NotEncodable, SameFile, UnsupportedFeature
from cmfio.header import Header
from cmfio.reader import open_container
from cmfio.rewrite import encode_tensor
from cmfio.sizes import sizes
from cmfio.verify import verify
from cmfio.writer import Output, write_container
from tests.oracles.codecs import is_ternary

PEERS = Path(__file__).parents[1] / "peers" / "cmf"
FULL = PEERS / "full.cmf"
F32 = NDArray[np.float32]


def converted(out: Path, codec: str, only: str | None = None, threads: int = 1) -> Path:
    with open_container(FULL) as source:
        return convert(source, out, codec, only=only, output=Output(threads=threads))[0]


def test_only_the_matching_tensors_change(tmp_path: Path) -> None:
    out = converted(tmp_path / "out.cmf", "q8_row", "model.mtp.*_proj.weight")
    with open_container(FULL) as before, open_container(out) as after:
        found = {one.name for one in compare(before, after).tensors}
        drafts = {n for n in before.entries if "mtp" in n and n.endswith("_proj.weight")}
        assert found == drafts
        for name in drafts:
            values = np.load(PEERS / "full.npy" / f"{name}.npy")
            assert bytes(after.payload(name)) == CODECS["q8_row"].encode(values)
        assert after.header.to_json() == before.header.to_json()


def test_a_dtypes_name_is_that_dtype_and_a_whole_model_gets_its_label(
    tmp_path: Path,
) -> None:
    for word, dtype in (("vbit", "vbit"), ("profile:vbit", "vbit_ro")):
        out = converted(tmp_path / "out.cmf", word)
        with open_container(out) as after:
            gate = after.entries["model.layers.0.mlp.gate_proj.weight"]
            assert gate.dtype == dtype
            assert after.header.quant_type == "VBIT"
            assert after.entries["model.norm.weight"].dtype == "f16"
            assert verify(after) == []


@pytest.mark.parametrize(
    ("word", "label"),
    [("f32", "F32"), ("bf16", "BF16"), ("q4tp", "Q4_BLOCK"), ("q8_2f", "Q8_2F")],
)
def test_a_converted_model_says_what_the_peers_converter_would(
    word: str, label: str, tmp_path: Path
) -> None:
    with open_container(converted(tmp_path / "out.cmf", word)) as after:
        assert after.header.quant_type == label


def test_whole_numbers_and_floats_in_their_own_dtype_are_copied(tmp_path: Path) -> None:
    with open_container(PEERS / "nd.cmf") as source:
        convert(source, tmp_path / "out.cmf", "f16")
        with open_container(tmp_path / "out.cmf") as after:
            for name, entry in source.entries.items():
                if entry.dtype in {"u8", "u32", "u64", "f16"}:
                    assert after.payload(name) == source.payload(name), name


def test_threads_change_no_byte(tmp_path: Path) -> None:
    one = converted(tmp_path / "one.cmf", "q4tp").read_bytes()
    assert converted(tmp_path / "three.cmf", "q4tp", threads=3).read_bytes() == one


def test_a_pattern_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingTensor, match=r"no tensor's name matches 'model\.mpt\.\*'"):
        converted(tmp_path / "out.cmf", "f16", "model.mpt.*")


def test_the_source_isnt_converted_in_place(tmp_path: Path) -> None:
    path = tmp_path / "m.cmf"
    path.write_bytes(FULL.read_bytes())
    with open_container(path) as source, pytest.raises(SameFile):
        convert(source, path, "f16")


def test_affine_matrices_are_never_decoded(tmp_path: Path) -> None:
    name = "w"
    with open_container(PEERS / "align.cmf") as source:
        arch = source.header.arch
    prism = {
        "version": 1,
        "block_size": 32,
        "transform": "normalized-sylvester-walsh-hadamard",
        "axis": "input-last-dimension",
        "sign_mode": "explicit",
        "widths": (32,),
        "signs": (1.0,) * 32,
        "forward_weight_names": (name,),
        "inverse_weight_names": (),
        "gdn_v_grouped": False,
        "activation_f16": False,
        "affine": {
            "version": 1,
            "profile": "q2tp_affine",
            "group_size": 32,
            "correction_scale": 0.5,
            "target_names": (name,),
        },
    }
    tree = arch.to_json() | {"arch_name": "prism_hadamard_qwen35", "prism_hadamard": prism}
    header = Header.model_validate({"arch": tree, "quant_type": "Q4_BLOCK"})
    rotated = encode_tensor(name, np.ones((4, 32), np.float32), "q2tp")
    write_container(tmp_path / "prism.cmf", header, [rotated])
    with open_container(tmp_path / "prism.cmf") as source:
        with pytest.raises(UnsupportedFeature, match="affine q2tp"):
            convert(source, tmp_path / "out.cmf", "f16")
        convert(source, tmp_path / "out.cmf", "keep")
    assert (tmp_path / "out.cmf").read_bytes() == (tmp_path / "prism.cmf").read_bytes()


MATRIX = (23, 96)
BY_ROWS = [codec for codec in CODECS if encodes_by_rows(codec, MATRIX)]
READ_BY_ROWS = [
    name for name in CODECS if name in BY_NAME and decodes_by_rows(name, MATRIX)
]


def one_matrix(path: Path, values: F32, codec: str) -> Path:
    with open_container(PEERS / "align.cmf") as source:
        write_container(path, source.header, [encode_tensor("w", values, codec)])
    return path


@pytest.mark.parametrize(
    ("dtype", "codec"),
    [*(("f32", codec) for codec in BY_ROWS), *((dtype, "f32") for dtype in READ_BY_ROWS)],
)
def test_blocks_of_rows_give_the_bytes_of_the_whole(
    dtype: str, codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.random.default_rng(5).standard_normal(MATRIX).astype(np.float32)
    path = one_matrix(tmp_path / "m.cmf", noise, dtype)
    with open_container(path) as source:
        convert(source, tmp_path / "whole.cmf", codec)
        monkeypatch.setattr(reencode, "BLOCK_BYTES", 4 * 96 * 5)  # five rows
        convert(source, tmp_path / "blocks.cmf", codec)
    assert (tmp_path / "blocks.cmf").read_bytes() == (tmp_path / "whole.cmf").read_bytes()


def test_the_formats_codecs_go_by_rows_where_no_row_depends_on_another() -> None:
    floats, fours = {"f32", "f16", "bf16"}, {"q4_block", "q4_tiled", "q4tp"}
    assert set(BY_ROWS) >= floats | fours | {"q8_row", "q2tp", "q1", "q1p"}
    assert set(READ_BY_ROWS) >= (set(BY_ROWS) & set(BY_NAME)) | {"q8_2f"}
    assert "q8_2f" not in BY_ROWS  # its columns' scales are of all rows


def test_groups_that_straddle_rows_are_no_blocks() -> None:
    assert not encodes_by_rows("q4_block", (64, 40))
    assert encodes_by_rows("q8_row", (64, 40))


def test_a_value_too_large_is_named_by_its_row_in_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.ones((23, 96), np.float32)
    values[17, 4] = 70_000
    path = one_matrix(tmp_path / "m.cmf", values, "f32")
    monkeypatch.setattr(reencode, "BLOCK_BYTES", 4 * 96 * 5)
    with open_container(path) as source, pytest.raises(NotEncodable, match=r"\[17, 4\]"):
        convert(source, tmp_path / "out.cmf", "f16")


@pytest.mark.parametrize("codec", [c for c in CODECS if not is_ternary(c)])
def test_sizes_are_those_of_the_files_then_written(codec: str, tmp_path: Path) -> None:
    with open_container(FULL) as source:
        told = next(line for line in sizes(source) if line.codec == codec)
    with open_container(converted(tmp_path / "a.cmf", codec)) as after:
        model = sum(entry.nbytes for entry in after.entries.values())
        draft = sum(
            e.nbytes for n, e in after.entries.items() if n.startswith("model.mtp.")
        )
    with open_container(converted(tmp_path / "b.cmf", codec, "model.mtp.*")) as after:
        with_draft = sum(entry.nbytes for entry in after.entries.values())
    if told.is_exact:
        assert (told.model, told.draft, told.with_draft) == (model, draft, with_draft)
    else:
        assert told.model == pytest.approx(model, rel=0.1)
        assert told.draft == pytest.approx(draft, rel=0.1)
    assert told.is_exact == (CODECS[codec].nbytes(MATRIX) is not None)
