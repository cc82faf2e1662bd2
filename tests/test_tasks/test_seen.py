"""When a file counts as another than it was."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.errors import InputError
from tasks.seen import look_at, look_at_open, refuse_changed

TIME_NS = 10**18


def stamped(path: Path, text: str = "old") -> Path:
    path.write_text(text)
    os.utime(path, ns=(TIME_NS, TIME_NS))
    return path


def renamed_over(path: Path) -> None:
    """By one of the same size and time, as archives unpack them."""
    time.sleep(0.02)  # the system's clock of files moves in steps of up to 10 ms
    stamped(path.with_name("new"), "new").replace(path)


CHANGES: list[Callable[[Path], object]] = [
    renamed_over,
    os.utime,
    Path.unlink,
    lambda path: path.write_text("new"),
    lambda path: stamped(path, "longer"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_a_change(tmp_path: Path, change: Callable[[Path], object]) -> None:
    path, other = stamped(tmp_path / "a"), stamped(tmp_path / "b")
    before = look_at([other, path])
    change(path)
    with pytest.raises(InputError, match="/a: changed while the run was at it"):
        refuse_changed(before, look_at([other, path]))


def test_what_is_none(tmp_path: Path) -> None:
    path = stamped(tmp_path / "a")
    before = look_at([path])
    path.chmod(0o400)
    os.link(path, tmp_path / "b")
    refuse_changed(before, look_at([path]))
    # A file system that numbers its files anew, as they are looked up.
    numbered = [replace(before[0], inode=before[0].inode + 1)]
    refuse_changed(numbered, before)


def test_a_file_that_came_is_a_change(tmp_path: Path) -> None:
    path = stamped(tmp_path / "a")
    with pytest.raises(InputError, match="/a: changed"):
        refuse_changed([], look_at([path, tmp_path / "not there"]))


def test_an_open_file_is_not_what_took_its_name(tmp_path: Path) -> None:
    path = stamped(tmp_path / "a")
    with path.open() as file:
        opened = look_at_open(path, file.fileno())
        refuse_changed([opened], look_at([path]))
        renamed_over(path)
        with pytest.raises(InputError, match="/a: changed"):
            refuse_changed([opened], look_at([path]))
