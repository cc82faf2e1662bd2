"""What `cmf` says of inputs that aren't files, or can't be read: exit 2, never a wait."""

import json
import os
from pathlib import Path

import pytest

from tests.gguf_files import write_gguf
from tests.test_cmfio.command import FULL, cmf, shell, without_power
from tests.tiny_checkpoints import Wishes, make_checkpoint


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sub", "is a folder; give a .cmf container"),
        ("none", "there is no such file"),
        ("x" * 300, "can't be read: File name too long"),
        ("file/x", "can't be read: Not a directory"),
        ("loop", "can't be read: Too many levels of symbolic links"),
        ("/dev/null", "is a device; give a .cmf container"),
    ],
)
def test_what_isnt_a_file_is_bad_input(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("file").write_bytes(b"")
    Path("loop").symlink_to("loop")
    for command in ("info", "tensors", "sizes", "verify"):
        result = cmf(command, name)
        assert result.exit_code == 2, command
        assert text in result.stderr
        assert len(result.stderr.splitlines()) == 1
    told = json.loads(cmf("verify", name, "--json").stdout)
    assert text in told["error"]["message"]
    for words in (("import-gguf", name, "out.cmf"), ("import-hf", name, "out.cmf")):
        assert cmf(*words).exit_code == 2, words
    assert not Path("out.cmf").exists()


def test_a_model_in_another_format_is_told_what_makes_a_container_of_it(
    tmp_path: Path,
) -> None:
    write_gguf(tmp_path / "m.gguf")
    folder = make_checkpoint(tmp_path / "hf", "qwen3", Wishes())
    weights = next(folder.glob("*.safetensors"))
    assert "; `cmf import-gguf` makes one" in cmf("info", tmp_path / "m.gguf").stderr
    assert "is given as its folder" in cmf("info", weights).stderr
    said = cmf("info", folder / "config.json").stderr
    assert said.endswith("; give a .cmf, or the folder of a Hugging Face checkpoint\n")


def test_a_file_isnt_a_missing_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = cmf("import-hf", tmp_path / "file", tmp_path / "out.cmf")
    assert result.exit_code == 2
    assert "file: is no folder" in result.stderr


def test_a_folder_isnt_missing(tmp_path: Path) -> None:
    result = cmf("import-gguf", tmp_path, tmp_path / "out.cmf")
    assert "is a folder; give a GGUF file" in result.stderr


def test_a_pipe_isnt_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = shell('exec "$@"', "info", tmp_path / "pipe")
    assert done.returncode == 2
    assert "is a pipe; give a .cmf container" in done.stderr
    for name in ("config.json", "tokenizer.json", "model.safetensors.index.json"):
        folder = make_checkpoint(tmp_path / name / "hf", "qwen3", Wishes(shards=2))
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
        done = shell('exec "$@"', "import-hf", folder, tmp_path / "out.cmf")
        assert done.returncode == 2, name


def test_an_unreadable_file_is_refused_for_scripts_too(tmp_path: Path) -> None:
    path = tmp_path / "m.cmf"
    path.write_bytes(Path(FULL).read_bytes())
    path.chmod(0)
    cmf("verify", FULL, "--json")  # imports what the next will need
    with without_power():
        result = cmf("verify", path, "--json")
        plain = cmf("info", path)
    told = json.loads(result.stdout)
    assert result.exit_code == plain.exit_code == 2
    assert told["error"]["kind"] == "Io"
    assert told["error"]["message"] == f"{path}: can't be read: Permission denied"
    assert told["problems"] == []


def test_a_part_that_isnt_there_is_called_as_it_was_asked_for(tmp_path: Path) -> None:
    bare = Path(FULL).with_name("nd.cmf")
    result = cmf("extract", bare, "tokenizer", tmp_path / "out")
    assert "has no tokenizer; of tokenizer, masks and index it has none" in result.stderr


def test_a_pattern_that_may_have_meant_a_bracket_gets_a_hint(tmp_path: Path) -> None:
    with_bracket = cmf("tensors", FULL, "--filter", "x[1]").stderr
    assert "[[] for a [" in with_bracket
    assert "[[]" not in cmf("tensors", FULL, "--filter", "x").stderr
