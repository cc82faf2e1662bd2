"""Where `cmf` writes, and where it refuses to before it has done anything."""

import os
import re
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cmfio.atomic import check_output, replacing, replacing_folder
from cmfio.errors import BadPath, SameFile
from cmfio.reader import open_container
from cmfio.rewrite import rewrite
from cmfio.writer import Output
from tests.test_cmfio.command import FULL, cmf, without_power
from tests.tiny_checkpoints import Wishes, make_checkpoint

NORM = "model.norm.weight"
COMMANDS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "convert": lambda out: ("convert", FULL, out),
    "dump": lambda out: ("dump", FULL, NORM, out),
    "extract": lambda out: ("extract", FULL, "tokenizer", out),
}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", [".", "..", "/", "sub", "link"])
def test_a_folder_is_no_output(
    name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub")
    monkeypatch.chdir(tmp_path)
    result = cmf(*COMMANDS[command](name))
    assert result.exit_code == 2
    assert "is a folder; give the path of a file" in result.stderr
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["link", "sub"]


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def make_read_only(path: Path) -> None:
    path.write_bytes(b"precious")
    path.chmod(0o444)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("make", "text"),
    [(make_pipe, "is a pipe"), (make_socket, "is a socket"), (make_read_only, "read-only")],
)
def test_what_isnt_a_file_to_be_replaced_stays(
    make: Callable[[Path], None],
    text: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    make(Path("out"))
    before = Path("out").lstat()
    result = cmf(*COMMANDS[command]("out"))
    assert result.exit_code == 2
    assert text in result.stderr
    after = Path("out").lstat()
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (
        before.st_ino,
        before.st_mode,
        before.st_mtime_ns,
    )
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_isnt_a_file_is_no_place_to_write_meanwhile(tmp_path: Path) -> None:
    make_pipe(tmp_path / "out.partial")
    result = cmf("convert", FULL, tmp_path / "out")
    assert result.exit_code == 2
    assert "is in the way of a new out" in result.stderr


@pytest.mark.parametrize("old", [b"old", None])
def test_a_link_stays_and_what_it_leads_to_is_replaced(
    old: bytes | None, tmp_path: Path
) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "target.cmf", tmp_path / "link.cmf"
    if old is not None:
        target.write_bytes(old)
    link.symlink_to("far/target.cmf")
    assert cmf("convert", FULL, link).exit_code == 0
    assert link.is_symlink()
    assert target.read_bytes() == Path(FULL).read_bytes()
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["target.cmf"]


def test_a_first_shards_link_stays_too(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link = tmp_path / "m-00001-of-00002.cmf"
    link.symlink_to("far/first.cmf")
    (tmp_path / "far" / "first.cmf").write_bytes(b"old")
    with open_container(FULL) as source:
        paths = rewrite(
            source, tmp_path / "m.cmf", {}, output=Output(shard_max_bytes=30_000)
        )
    assert link.is_symlink()
    assert paths[0] == link
    # Its siblings are looked for beside the link.
    with open_container(link) as written, open_container(FULL) as source:
        assert list(written.entries) == list(source.entries)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_folder_is_named(command: str, tmp_path: Path) -> None:
    result = cmf(*COMMANDS[command](str(tmp_path / "none" / "out")))
    assert result.exit_code == 2
    assert f"there is no folder {tmp_path / 'none'}; make it first" in result.stderr
    assert "partial" not in result.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x" * 300, "can't be written: File name too long"),
        ("file/x", "can't be written: Not a directory"),
        ("loop", "can't be written: Too many levels of symbolic links"),
    ],
)
def test_names_that_cant_be_say_why(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to("loop")
    result = cmf("convert", FULL, tmp_path / name)
    assert result.exit_code == 2
    assert text in result.stderr


@pytest.mark.parametrize("mode", [0o555, 0o666], ids=["not written", "not entered"])
def test_a_locked_folder_says_so(mode: int) -> None:
    with tempfile.TemporaryDirectory() as name, open_container(FULL) as source:
        place = Path(name)
        rewrite(source, place / "first.cmf", {})  # imports what the next will need
        place.chmod(0o755)
        (place / "locked").mkdir()
        (place / "locked").chmod(mode)
        out = place / "locked" / "x.cmf"
        text = rf"^{re.escape(str(out))}: can't be written: Permission denied$"
        with without_power(), pytest.raises(BadPath, match=text):
            rewrite(source, out, {})
        (place / "locked").chmod(0o755)


def test_a_device_is_no_output() -> None:
    with pytest.raises(BadPath, match="is a device"):
        check_output(Path("/dev/null"))  # this looks, and never writes


# Whichever of a checkpoint's files is overwritten, it can't be imported again.
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "notes.txt", "sub/deep"])
def test_no_file_in_an_imported_folder_is_overwritten(name: str, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "qwen3", Wishes())
    (folder / "sub").mkdir()
    for extra in ("notes.txt", "sub/deep"):
        (folder / extra).write_text("kept", "utf-8")
    before = (folder / name).read_bytes(), contents(folder)
    result = cmf("import-hf", folder, folder / name)
    assert result.exit_code == 2
    assert "input" in result.stderr
    assert ((folder / name).read_bytes(), contents(folder)) == before
    assert cmf("import-hf", folder, folder / "new.cmf").exit_code == 0


def test_folders_and_files_as_sources(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"")
    (tmp_path / "b").hardlink_to(tmp_path / "in" / "a")
    with pytest.raises(SameFile, match="a file in the input"):
        check_output(tmp_path / "in" / "a", [tmp_path / "in"])
    with pytest.raises(SameFile, match="the input itself"):
        check_output(tmp_path / "b", [tmp_path / "in", tmp_path / "in" / "a"])
    check_output(tmp_path / "in" / "new", [tmp_path / "in"])


def test_an_export_goes_where_a_link_to_an_empty_folder_leads(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "qwen3", Wishes())
    assert cmf("import-hf", folder, tmp_path / "m.cmf").exit_code == 0
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far")
    assert cmf("export-hf", tmp_path / "m.cmf", tmp_path / "link").exit_code == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "far" / "config.json").is_file()
    assert cmf("export-hf", tmp_path / "m.cmf", tmp_path / "link").exit_code == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "name a new folder"),
        ("..", "name a new folder"),
        ("/", "name a new folder"),
        ("file", "is there already"),
        ("none/out", "there is no folder"),
        ("loop", "can't be written"),
        ("x" * 300, "File name too long"),
    ],
)
def test_bad_places_for_a_folder_are_refused_at_once(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_bytes(b"")
    Path("loop").symlink_to("loop")
    with pytest.raises(BadPath, match=text), replacing_folder(Path(name)):
        pytest.fail("began to write")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]


def test_a_folder_that_steps_aside_takes_nobodys_name(tmp_path: Path) -> None:
    for name in ("out", "out.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kept").write_bytes(b"mine")
    with replacing_folder(tmp_path / "out", replaces=True) as made:
        (made / "new").write_bytes(b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.old"]
    assert (tmp_path / "out.old" / "kept").read_bytes() == b"mine"


def half_written(out: Path) -> None:
    with replacing(out) as file:
        file.write(b"half")
        raise KeyError


def test_a_plain_file_is_replaced_whole(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old")
    with pytest.raises(KeyError):
        half_written(tmp_path / "out")
    assert contents(tmp_path) == {"out": b"old"}
    with replacing(tmp_path / "out") as file:
        file.write(b"new")
    assert contents(tmp_path) == {"out": b"new"}
