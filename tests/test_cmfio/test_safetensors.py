"""Safetensors files from anywhere: what they claim is compared with what they are."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from cmfio.errors import CmfError
from cmfio.safetensors_files import open_checkpoint


def refused(folder: Path, problem: str) -> None:
    with pytest.raises(CmfError, match=problem), open_checkpoint(folder):
        pass


def record(**changes: object) -> str:
    return json.dumps(
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}
    )


@pytest.mark.parametrize(
    ("length", "text", "problem"),
    [
        (2**60, "{}", "claims a header of"),
        (100, "{}", "claims a header of"),
        (2, "[]", "must be a JSON object"),
        (None, "{" * 100, "isn't valid JSON"),
        (None, record(shape=[2**40, 2**40]), "takes"),
        (None, record(data_offsets=[0, 2**60]), "lies at"),
        (None, record(data_offsets=[8, 0]), "lies at"),
        (None, record(data_offsets=[-8, 0]), "whole numbers"),
        (None, record(dtype="F99"), "dtype 'F99'"),
        (None, record(shape=2), "whole numbers"),
        (None, '{"w": 1}', "isn't an object"),
    ],
)
def test_broken_files_are_refused(
    length: int | None, text: str, problem: str, tmp_path: Path
) -> None:
    size = len(text) if length is None else length
    file = size.to_bytes(8, "little") + text.encode() + bytes(8)
    (tmp_path / "model.safetensors").write_bytes(file)
    refused(tmp_path, problem)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"w": np.ones((4, 8), np.float32)}, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refused(tmp_path, "model.safetensors")


@pytest.mark.parametrize(
    ("places", "problem"),
    [
        ({"w": "../secret.safetensors"}, "isn't a file's name beside it"),
        ({"w": "/etc/passwd"}, "isn't a file's name beside it"),
        ({"w": "model-00009-of-00009.safetensors"}, "isn't there"),
        ({"w": "model.safetensors"}, "has no tensor 'w'"),
        ({}, "no weight_map"),
    ],
)
def test_an_index_points_only_beside_itself(
    places: dict[str, str], problem: str, tmp_path: Path
) -> None:
    save_file({"other": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    index = json.dumps({"weight_map": places})
    (tmp_path / "model.safetensors.index.json").write_text(index, "utf-8")
    refused(tmp_path, problem)


def test_one_file_of_any_name_will_do_but_not_two(tmp_path: Path) -> None:
    refused(tmp_path, "has 0 safetensors files")
    save_file({"w": np.ones(2, np.float32)}, tmp_path / "a.safetensors")
    with open_checkpoint(tmp_path) as tensors:
        assert (tensors["w"].dtype, tensors["w"].shape) == ("F32", (2,))
    save_file({"w": np.ones(2, np.float32)}, tmp_path / "b.safetensors")
    refused(tmp_path, "has 2 safetensors files")
