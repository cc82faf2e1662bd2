from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from store.arrays import Kind, create_array, open_array
from store.errors import ArtifactDamaged, ArtifactError, BadName
from store.tables import read_table, write_table


def chunk(folder: Path, number: int) -> Path:
    return next(p for p in (folder / "c" / str(number)).rglob("*") if p.is_file())


def written(folder: Path, kind: Kind) -> Path:
    array = create_array(folder, "a", (3, 4, 5), "u2", kind)
    array[:] = np.arange(60, dtype="u2").reshape(3, 4, 5)
    return folder / "a"


@pytest.mark.parametrize("kind", ["raw", "packed"])
def test_a_window_reads_back_bit_for_bit(tmp_path: Path, kind: Kind) -> None:
    written(tmp_path, kind)
    array = open_array(tmp_path, "a")
    assert (len(array), array.shape, array.chunks) == (3, (3, 4, 5), (1, 4, 5))
    assert array[1, 2].tolist() == [30, 31, 32, 33, 34]  # from 1·20 + 2·5


def test_raw_chunks_are_the_bytes_and_a_crc(tmp_path: Path) -> None:
    data = chunk(written(tmp_path, "raw"), 2).read_bytes()
    assert data[:-4] == np.arange(40, 60, dtype="<u2").tobytes()


@pytest.mark.parametrize("kind", ["raw", "packed"])
@pytest.mark.parametrize("harm", ["flip", "zero", "cut", "empty"])
def test_a_harmed_chunk_is_an_error(tmp_path: Path, kind: Kind, harm: str) -> None:
    file = chunk(written(tmp_path, kind), 1)
    data = bytearray(file.read_bytes())
    data[-6] ^= 1
    harmed = {
        "flip": bytes(data),
        "zero": bytes(len(data)),
        "cut": bytes(data[:5]),
        "empty": b"",
    }
    file.write_bytes(harmed[harm])
    array = open_array(tmp_path, "a")
    assert array[0][0, 0] == 0
    with pytest.raises(ArtifactDamaged, match="a chunk is damaged"):
        array[1]


def test_a_missing_chunk_is_not_read_as_fill(tmp_path: Path) -> None:
    chunk(written(tmp_path, "raw"), 1).unlink()
    with pytest.raises(ArtifactDamaged, match="2 of 3 chunks"):
        open_array(tmp_path, "a")


def test_a_window_of_fill_values_is_written_too(tmp_path: Path) -> None:
    create_array(tmp_path, "a", (2, 3), "f4", "raw")[:] = np.full((2, 3), np.nan, "f4")
    assert np.isnan(open_array(tmp_path, "a")[:]).all()


def test_several_windows_a_chunk(tmp_path: Path) -> None:
    array = create_array(tmp_path, "a", (5, 2), "bool", "packed", windows_per_chunk=2)
    array[:] = np.array([[True, False]] * 5)
    assert len([p for p in (tmp_path / "a" / "c").rglob("*") if p.is_file()]) == 3
    assert open_array(tmp_path, "a")[4].tolist() == [True, False]


def test_no_array_where_none_is(tmp_path: Path) -> None:
    with pytest.raises(ArtifactDamaged, match="no readable array"):
        open_array(tmp_path, "a")
    written(tmp_path, "raw")
    (tmp_path / "a" / "zarr.json").write_text("{")
    with pytest.raises(ArtifactDamaged, match="no readable array"):
        open_array(tmp_path, "a")


def test_names_and_shapes_are_checked(tmp_path: Path) -> None:
    with pytest.raises(BadName):
        create_array(tmp_path, "../a", (1, 1), "u1", "raw")
    with pytest.raises(ArtifactError, match="holds nothing"):
        create_array(tmp_path, "a", (0, 4), "u1", "raw")


def test_a_table_reads_back(tmp_path: Path) -> None:
    table = pa.table({"ids": [[1, 2], [3]], "set": ["code", "prose"]})
    write_table(tmp_path / "t.arrow", table)
    assert read_table(tmp_path / "t.arrow").to_pydict() == table.to_pydict()
    assert [p.name for p in tmp_path.iterdir()] == ["t.arrow"]


def test_a_failed_table_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(AttributeError):
        write_table(tmp_path / "t.arrow", None)
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_is_gone_or_cut_is_damage(tmp_path: Path) -> None:
    file = tmp_path / "t.arrow"
    with pytest.raises(ArtifactDamaged, match="missing"):
        read_table(file)
    write_table(file, pa.table({"x": [1]}))
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(ArtifactDamaged, match="no readable Arrow table"):
        read_table(file)
