"""Outputs that a file can't take the place of: told before anything runs."""

import os
from pathlib import Path

import pytest

from tasks.errors import InputError
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
