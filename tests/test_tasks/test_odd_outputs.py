"""Outputs that can't be written, or are no place for a file: told before anything runs."""

import errno
import os
import tempfile
from pathlib import Path

import pytest

from tasks.errors import InputError
from tasks.model_file import Layout
from tasks.publish import Target, refuse_bad_outputs


def refused(path: Path, text: str) -> None:
    with pytest.raises(InputError, match=text):
        refuse_bad_outputs([Target(path, "keep")], {})


def test_what_a_file_cant_replace_is_no_output(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "locked").write_bytes(b"")
    (tmp_path / "locked").chmod(0o444)
    refused(tmp_path, "is a folder; give the path of a file")
    refused(tmp_path / "pipe", "outputs: .* is a pipe; give the path of a file")
    refused(tmp_path / "locked", "is read-only")
    refused(Path("/dev/null"), "is a device")  # only looked at
    (tmp_path / "text.py").write_text("import this\n")
    refused(tmp_path / "text.py", "is there already and is no .cmf, so it is not replaced")
    refuse_bad_outputs([Target(tmp_path / "new" / "m.cmf", "keep")], {})


def test_one_that_cant_be_read_is_not_replaced_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept.cmf").write_bytes(b"CMF\x01")
    refuse_bad_outputs([Target(tmp_path / "kept.cmf", "keep")], {})

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    refused(tmp_path / "kept.cmf", "is there already and can't be read: Permission denied")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (errno.EROFS, "Read-only file system"),
        (errno.EACCES, "Permission denied"),
        (errno.ENOSPC, "No space left on device"),
    ],
)
@pytest.mark.parametrize("layout", ["cmf", "hf"])
def test_a_folder_that_takes_no_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    why: str,
    layout: Layout,
) -> None:
    own, asked = os.open, []

    def denied(path: str, flags: int, *more: int) -> int:
        if flags & os.O_CREAT or flags & os.O_TMPFILE == os.O_TMPFILE:
            asked.append(Path(path))
            raise OSError(code, os.strerror(code), path)
        return own(path, flags, *more)

    path = tmp_path / "not yet" / "nor this" / "out.cmf"
    monkeypatch.setattr(tempfile._os, "open", denied)  # type: ignore[attr-defined]
    said = (
        f"{path} can't be written, {tmp_path} takes no new file .{why}.: make that folder"
    )
    with pytest.raises(InputError, match=said):
        refuse_bad_outputs([Target(path, "keep", layout)], {})
    assert asked
    assert all(tmp_path in (one, one.parent) for one in asked)


def test_where_no_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    refused(tmp_path / "notes.txt" / "deep" / "m.cmf", "notes.txt takes .*Not a directory")
    refused(tmp_path / "lost" / "m.cmf", "lost takes no new file .*No such file")
    refused(Path("/proc/m.cmf"), "/proc takes no new file .none can be made there.")
    (tmp_path / "here").mkdir()
    (tmp_path / "link.cmf").symlink_to(tmp_path / "here" / "m.cmf")
    refuse_bad_outputs([Target(tmp_path / "link.cmf", "keep")], {})


def test_looking_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, names = os.open, []

    def no_nameless(path: str, flags: int, *more: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:  # as network file systems say
            raise OSError(errno.EOPNOTSUPP, "Operation not supported", path)
        names.append(Path(path).name)
        return own(path, flags, *more)

    target = Target(tmp_path / "new" / "m.cmf", "keep")
    refuse_bad_outputs([target], {})
    monkeypatch.setattr(tempfile._os, "open", no_nameless)  # type: ignore[attr-defined]
    for _ in range(2):
        refuse_bad_outputs([target], {})
    assert len(set(names)) == 2
    assert not list(tmp_path.iterdir())
