"""What `cmf` prints: whole or with an error, and nothing that steers a terminal."""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from cmfio import cli_output
from cmfio.cli_output import bar, printable
from cmfio.json_text import Json
from cmfio.reader import open_container
from cmfio.rewrite import encode_tensor
from cmfio.writer import write_container
from tests.test_cmfio.command import FULL, PEERS, cmf, shell

HOSTILE = "a\nb\x1b[31m\x9b\u202e\x7f"
ESCAPED = r"a\nb\x1b[31m\x9b\u202e\x7f"


@pytest.mark.parametrize("words", [("tensors",), ("info",), ("info", "--json")])
@pytest.mark.parametrize(
    ("line", "why"),
    [('"$@" > /dev/full', "No space left on device"), ('"$@" >&-', "it is closed")],
)
def test_a_stdout_that_takes_nothing_is_a_failure(
    line: str, why: str, words: tuple[str, ...]
) -> None:
    done = shell(line, *words, FULL)
    assert done.returncode == 1
    assert done.stderr == f"cmf: standard output: can't be written: {why}\n"


def test_a_reader_that_has_had_enough_is_no_news() -> None:
    done = shell('("$@"; echo $? >&2) | true', "tensors", FULL)
    assert done.stderr in {"1\n", "0\n"}  # 0 where all went out before the reader left


def test_a_log_is_told_what_takes_long_and_at_times_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_output, "FIRST_LINE_S", 0.0)
    monkeypatch.setattr(cli_output, "LINE_EVERY_S", 0.05)
    with bar("importing a\nb") as progress:
        time.sleep(0.1)
        progress(1, 4)
        progress(2, 4)  # too soon after the last
        time.sleep(0.1)
        progress(4, 4)  # what is done says so itself
    said = capsys.readouterr().err
    assert said == "cmf: importing a\\nb …\ncmf: importing a\\nb: 25%\n"


def test_what_is_quick_leaves_no_line_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("checking") as progress:
        progress(1, 2)
    assert capsys.readouterr().err == ""


def test_nothing_is_said_on_a_closed_stderr() -> None:
    done = shell('"$@" 2>&-', "verify", str(PEERS / "none.cmf"))
    assert (done.returncode, done.stdout) == (2, "")


def test_what_a_terminal_cant_show_is_spelled() -> None:
    done = shell('"$@"', "tensors", FULL, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert r"40\xd732" in done.stdout


def test_a_file_name_that_isnt_utf8_is_spelled(tmp_path: Path) -> None:
    out = Path(os.fsdecode(os.fsencode(tmp_path) + b"/m\xff.cmf"))
    result = cmf("convert", FULL, out)
    assert result.exit_code == 0
    assert rf"{tmp_path}/m\udcff.cmf: " in result.stdout
    told = json.loads(cmf("convert", FULL, out, "--json").stdout)
    assert told[0]["path"] == str(out)


def test_only_what_isnt_printable_is_escaped() -> None:
    assert printable("plain × – ü 日本 text") == "plain × – ü 日本 text"
    assert printable(HOSTILE) == ESCAPED


def test_a_hostile_files_names_stay_on_their_lines(tmp_path: Path) -> None:
    path, other = tmp_path / "m.cmf", tmp_path / "other.cmf"
    with open_container(FULL) as source:
        arch = source.header.arch.model_copy(update={"arch_name": HOSTILE})
        header = source.header.model_copy(
            update={"arch": arch, "provenance": {HOSTILE: HOSTILE}}
        )
    ones = np.ones((2, 32), np.float32)
    write_container(path, header, [encode_tensor(HOSTILE, ones, "f16")])
    write_container(other, header, [encode_tensor("b", ones, "f16")])
    outputs = [
        cmf("info", path),
        cmf("tensors", path),
        cmf("diff", path, other),
        cmf("dump", path, "none", tmp_path / "w.npy"),
    ]
    for result in outputs:
        assert all(line.isprintable() for line in result.output.splitlines())
    assert ESCAPED in cmf("info", path).stdout
    assert r"provenance:     a\nb\u001b[31m" in cmf("info", path).stdout
    assert len(cmf("tensors", path).stdout.splitlines()) == 1
    listed = json.loads(cmf("tensors", path, "--json").stdout)
    assert listed[0]["name"] == HOSTILE


def test_a_long_provenance_is_told_within_a_terminal(tmp_path: Path) -> None:
    said: Json = {
        "tool": "heal",
        "mtp_heal": {
            "trunk": 64 * "a",
            "heldout_kl": [0.123456, *range(40)],
            "recipe": {"data": [{"path": "text", "tokens": 5}, {"path": "b"}]},
            "init": None,
        },
    }
    with open_container(FULL) as source:
        header = source.header.model_copy(update={"provenance": said})
    path = tmp_path / "m.cmf"
    write_container(path, header, [encode_tensor("a", np.ones((2, 32), np.float32), "f16")])
    _, told = cmf("info", path).stdout.split("provenance:")
    lines = [line.strip() for line in told.splitlines()]
    assert lines[:2] == ['tool "heal"', "mtp_heal.trunk"]
    assert all(len(line) <= 66 for line in lines)  # a digest and its quotes
    assert 'mtp_heal.recipe.data[1].path "b"' in lines
    assert not any("init" in line for line in lines)
    listed = " ".join(lines)
    assert f"heldout_kl [0.123456, {', '.join(map(str, range(40)))}]" in listed


@pytest.mark.parametrize("most", ["inf", "1e300", "nan", "0", "-1", "1e10"])
def test_a_shards_size_is_a_size(most: str, tmp_path: Path) -> None:
    for command in ("convert", "export-hf", "import-hf"):
        result = cmf(command, FULL, tmp_path / "m.cmf", "--shard-max-gb", most)
        assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []
