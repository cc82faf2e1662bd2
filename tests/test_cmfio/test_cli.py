"""`cmf`: what it prints, what scripts read, and its exit codes."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from cmfio.cli import app
from cmfio.header import dump_header
from cmfio.reader import open_container
from cmfio.rewrite import encode_tensor
from cmfio.writer import write_container

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
    told = json.loads(result.stdout)
    assert list(told) == ["error", "problems"]
    assert told["error"] is None
    assert "section 'vocab'" in told["problems"][0]
    assert json.loads(cmf("verify", FULL, "--json").stdout) == {
        "error": None,
        "problems": [],
    }


EXPECTED = json.loads((PEERS / "invalid" / "expected.json").read_text("utf-8"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_verify_says_the_peers_verdict_for_scripts(name: str) -> None:
    expected = EXPECTED[name]
    path = PEERS / "invalid" / name / expected.get("open_path", "")
    result = cmf("verify", str(path), "--json")
    told = json.loads(result.stdout)
    if name == "q4tp_cols_33.cmf":  # the peer opens it and decodes garbage
        assert told["error"]["kind"] == "Bounds"
    elif expected["open"] != "ok":
        assert told["error"]["kind"] == expected["open"]["kind"]
        assert told["error"]["message"]
    else:
        problems = [line.removeprefix(f"{path}: ") for line in told["problems"]]
        assert (told["error"], problems) == (None, expected["verify"])
    assert result.exit_code == (2 if told["error"] else 1 if told["problems"] else 0)


def test_dump_and_extract_take_parts_out(tmp_path: Path) -> None:
    name = "model.norm.weight"
    for part, out in (("header", "h.json"), ("tokenizer", "t.json"), (name, "raw")):
        assert cmf("extract", FULL, part, str(tmp_path / out)).exit_code == 0
    assert cmf("dump", FULL, name, str(tmp_path / "w.npy")).exit_code == 0
    with open_container(FULL) as container:
        assert (tmp_path / "h.json").read_bytes() == dump_header(container.header)
        assert (tmp_path / "t.json").read_bytes() == bytes(container.vocab or b"")
        assert (tmp_path / "raw").read_bytes() == container.payload(name)
    expected = np.load(PEERS / "full.npy" / f"{name}.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "w.npy"), expected)


def test_whole_numbers_are_dumped_as_such(tmp_path: Path) -> None:
    path = str(PEERS / "nd.cmf")
    assert cmf("dump", path, "raw.u32", str(tmp_path / "w.npy")).exit_code == 0
    assert np.load(tmp_path / "w.npy").dtype == np.uint32


def test_dump_refuses_what_isnt_there_and_the_input_itself(tmp_path: Path) -> None:
    copy = tmp_path / "full.cmf"
    copy.write_bytes(Path(FULL).read_bytes())
    assert cmf("dump", FULL, "nope", str(tmp_path / "out")).exit_code == 2
    assert cmf("extract", FULL, "nope", str(tmp_path / "out")).exit_code == 2
    bare = str(PEERS / "nd.cmf")
    assert "it has none" in cmf("extract", bare, "vocab", str(tmp_path / "out")).stderr
    assert cmf("extract", str(copy), "vocab", str(copy)).exit_code == 2
    assert copy.read_bytes() == Path(FULL).read_bytes()


def test_import_refuses_a_missing_file(tmp_path: Path) -> None:
    result = cmf("import-gguf", str(tmp_path / "none.gguf"), str(tmp_path / "out.cmf"))
    assert result.exit_code == 2
    assert "there is no such file" in result.stderr


def test_tensors_are_chosen_and_ordered() -> None:
    def names(*words: str) -> list[str]:
        listed = json.loads(cmf("tensors", FULL, "--json", *words).stdout)
        return [one["name"] for one in listed]

    seen = json.loads((PEERS / "full.info.json").read_text("utf-8"))["tensors"]
    in_file = [one["name"] for one in seen]
    assert names() == in_file
    assert names("--sort", "name") == sorted(in_file)
    by_bytes = [one["nbytes"] for one in sorted(seen, key=lambda one: -one["nbytes"])]
    listed = json.loads(cmf("tensors", FULL, "--json", "--sort", "bytes").stdout)
    assert [one["nbytes"] for one in listed] == by_bytes
    assert names("--filter", "*.mtp.*norm.weight", "--sort", "name") == sorted(
        name for name in in_file if ".mtp." in name and name.endswith("norm.weight")
    )
    assert cmf("tensors", FULL, "--filter", "nope*").exit_code == 2
    assert (
        "there are file, name, bytes, dtype" in cmf("tensors", FULL, "--sort", "x").stderr
    )


def test_convert_writes_shards_and_diff_finds_them_the_same(tmp_path: Path) -> None:
    out = str(tmp_path / "m.cmf")
    result = cmf("convert", FULL, out, "--shard-max-gb", "0.00003", "--json")
    paths = [one["path"] for one in json.loads(result.stdout)]
    assert [Path(path).name for path in paths] == [
        "m-00001-of-00002.cmf",
        "m-00002-of-00002.cmf",
    ]
    found = cmf("diff", FULL, paths[0])
    assert found.exit_code == 1
    assert found.stdout.splitlines() == [
        'header shard: only in B: {"no":1,"count":2}',
        "41 tensors are the same, byte for byte",
    ]
    assert cmf("diff", FULL, FULL).exit_code == 0


def test_convert_says_which_codecs_there_are_and_writes_nothing(tmp_path: Path) -> None:
    result = cmf("convert", FULL, str(tmp_path / "m.cmf"), "--codec", "q4k")
    assert result.exit_code == 2
    assert "q4_tiled" in result.stderr
    assert (
        cmf("convert", FULL, str(tmp_path / "m.cmf"), "--shard-max-gb", "0").exit_code == 2
    )
    assert list(tmp_path.iterdir()) == []


def test_sizes_of_a_model_without_a_draft_say_so(tmp_path: Path) -> None:
    path = tmp_path / "bare.cmf"
    with open_container(FULL) as source:
        tensor = encode_tensor("w", np.ones((2, 32), np.float32), "f16")
        write_container(path, source.header, [tensor])
    head, first, *_, last = cmf("sizes", str(path)).stdout.splitlines()
    assert head.split() == ["codec", "whole", "model"]
    assert first.split() == ["keep", "128"]
    assert last == "it carries no draft"


def test_sizes_prints_a_line_a_codec() -> None:
    lines = cmf("sizes", FULL).stdout.splitlines()
    told = json.loads(cmf("sizes", FULL, "--json").stdout)
    assert len(lines) == len(told) + 1
    q8_row = next(one for one in told if one["codec"] == "q8_row")
    assert f"{q8_row['draft']:,}" in next(
        line for line in lines if line.startswith("q8_row")
    )


def test_a_command_starts_at_once() -> None:
    words = [sys.executable, "-X", "importtime", "-m", "cmfio.cli", "info", FULL]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "cmfio.listing" in loaded
    assert not loaded & {
        "numba",
        "torch",
        "tokenizers",
        "gguf",
        "transformers",
        "rich.progress",
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["info"], "A .cmf file; of several shards the first. Type: cmf info PATH"),
        (["convert", "x.cmf"], "The .cmf to write. Type: cmf convert PATH OUT"),
        (["info", ""], "argument 1 of `cmf info` is empty"),
    ],
)
def test_what_a_line_lacks_is_named_with_what_to_type(
    monkeypatch: pytest.MonkeyPatch, line: list[str], words: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = CliRunner().invoke(app, line, prog_name="cmf")
    assert done.exit_code == 2
    assert words in " ".join(done.stderr.replace("│", " ").split())
