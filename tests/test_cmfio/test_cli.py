"""`cmf`: what it prints, what scripts read, and its exit codes."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from cmfio.cli import app
from cmfio.header import dump_header
from cmfio.reader import open_container

PEERS = Path(__file__).parents[1] / "peers" / "cmf"
FULL = str(PEERS / "full.cmf")


def cmf(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_info_says_the_main_facts() -> None:
    seen = json.loads((PEERS / "full.info.json").read_text("utf-8"))["tensors"]
    values = sum(math.prod(tensor["shape"]) for tensor in seen)
    drafts = sum(tensor["name"].startswith("model.mtp.") for tensor in seen)
    text = cmf("info", FULL).stdout
    assert "qwen3_5-mini: 2 layers of 32" in text
    assert f"{len(seen)} with {values:,} values" in text
    assert f"{drafts} tensors" in text
    assert "vocab 76" in text
    facts = json.loads(cmf("info", FULL, "--json").stdout)
    assert facts["layers"] == 2
    assert facts["dtypes"]["q8_row"] == 40 * 32 + 80
    assert facts["features"] == ["TENSOR_DIR", "BINARY_MASKS", "QUANT_2F"]


def test_tensors_lists_the_directory() -> None:
    lines = cmf("tensors", FULL).stdout.splitlines()
    listed = json.loads(cmf("tensors", FULL, "--json").stdout)
    seen = json.loads((PEERS / "full.info.json").read_text("utf-8"))["tensors"]
    assert [line.split()[-1] for line in lines] == [tensor["name"] for tensor in seen]
    assert [one["hash64"] for one in listed] == [tensor["hash"] for tensor in seen]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("valid_base.cmf", 0),
        ("verify_tensor_byte.cmf", 1),
        ("truncated_index.cmf", 2),
        ("magic.cmf", 2),
        ("no_such_file.cmf", 2),
    ],
)
def test_verify_tells_damage_from_bad_input(name: str, code: int) -> None:
    result = cmf("verify", str(PEERS / "invalid" / name))
    assert result.exit_code == code
    assert name in result.output
    assert len(result.output.splitlines()) == 1


def test_verify_lists_problems_for_scripts() -> None:
    path = str(PEERS / "invalid" / "verify_vocab_byte.cmf")
    result = cmf("verify", path, "--json")
    assert result.exit_code == 1
    (problem,) = json.loads(result.stdout)["problems"]
    assert "section 'vocab'" in problem


def test_dump_takes_parts_out(tmp_path: Path) -> None:
    name = "model.norm.weight"
    for part, out in (("header", "h.json"), ("vocab", "t.json"), (name, "w.npy")):
        assert cmf("dump", FULL, part, str(tmp_path / out)).exit_code == 0
    assert cmf("dump", FULL, name, str(tmp_path / "raw"), "--raw").exit_code == 0
    with open_container(FULL) as container:
        assert (tmp_path / "h.json").read_bytes() == dump_header(container.header)
        assert (tmp_path / "t.json").read_bytes() == bytes(container.vocab or b"")
        assert (tmp_path / "raw").read_bytes() == container.payload(name)
    expected = np.load(PEERS / "full.npy" / f"{name}.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "w.npy"), expected)


def test_dump_refuses_what_isnt_there_and_the_input_itself(tmp_path: Path) -> None:
    copy = tmp_path / "full.cmf"
    copy.write_bytes(Path(FULL).read_bytes())
    assert cmf("dump", FULL, "nope", str(tmp_path / "out")).exit_code == 2
    assert cmf("dump", str(copy), "vocab", str(copy)).exit_code == 2
    assert copy.read_bytes() == Path(FULL).read_bytes()


def test_import_refuses_a_missing_file(tmp_path: Path) -> None:
    result = cmf("import-gguf", str(tmp_path / "none.gguf"), str(tmp_path / "out.cmf"))
    assert result.exit_code == 2
    assert "there is no such file" in result.stderr
