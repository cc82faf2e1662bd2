"""A heal reads its inputs: no byte, time or mode of them changes, and none is ever opened
to be written to."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders import write_model
from tests.small_heal import heal, small_ground, small_model, write_records
from tests.test_tasks.test_checkpoint_heal import Place
from tests.tiny_checkpoints import Wishes

TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Audit events of Python that change a file or folder, and where their paths are.
CHANGES = {
    "os.chmod": 1,
    "os.chown": 1,
    "os.link": 2,
    "os.mkdir": 1,
    "os.remove": 1,
    "os.rename": 2,
    "os.rmdir": 1,
    "os.setxattr": 1,
    "os.symlink": 2,
    "os.truncate": 1,
    "os.utime": 1,
}
watched: list[Path] = []
changes: list[str] = []


def audit(event: str, args: tuple[Any, ...]) -> None:
    """Notes what would change a file below a watched folder; a hook can't be taken off."""
    if not watched or (event != "open" and event not in CHANGES):
        return
    is_reading = event == "open" and not (isinstance(args[2], int) and args[2] & TO_WRITE)
    for place in () if is_reading else args[: CHANGES.get(event, 1)]:
        if isinstance(place, str | bytes | os.PathLike):
            path = Path(os.path.abspath(os.fsdecode(place)))  # noqa: PTH100 — links stay
            if path.is_relative_to(watched[0]):
                changes.append(f"{event} {path}")


@pytest.fixture
def inputs(tmp_path: Path) -> Iterator[Path]:
    """A folder for inputs, watched once `watched` holds it."""
    if audit not in hooked:
        sys.addaudithook(audit)
        hooked.append(audit)
    folder = tmp_path / "inputs"
    folder.mkdir()
    yield folder
    watched.clear()
    changes.clear()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)


hooked: list[object] = []


def state(folder: Path) -> dict[str, tuple[object, ...]]:
    """All that is to stay of everything below a folder."""
    found: dict[str, tuple[object, ...]] = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        kept = (status.st_mode, status.st_mtime_ns, status.st_ino, status.st_nlink)
        found[str(path)] = (*kept, data)
    return found


def lock(folder: Path) -> None:
    """No write permission anywhere below; for root that is a mode like any other."""
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)


def test_what_would_change_an_input_is_noted(inputs: Path) -> None:
    watched.append(inputs)
    (inputs / "a").write_bytes(b"x")
    (inputs / "a").open("r+b").close()
    assert (inputs / "a").read_bytes() == b"x"
    os.utime(inputs / "a")
    (inputs / "a").rename(inputs / "b")
    (inputs / "b").unlink()
    events = [line.split()[0] for line in changes]
    assert events == ["open", "open", "os.utime", "os.rename", "os.rename", "os.remove"]


def test_student_init_and_data_stay_as_they_are(inputs: Path, tmp_path: Path) -> None:
    ground = small_ground(inputs)
    init = write_model(inputs / "init.cmf", small_model(seed=1))
    (inputs / "more").mkdir()
    write_records(inputs / "more" / "a.jsonl", ground.records)
    outputs = [
        {"codec": codec, "path": str(tmp_path / "out" / f"{codec}.cmf")}
        for codec in ("keep", "q8_row")
    ]
    config = ground.config(
        init=str(init),
        data=[str(ground.data), f"{inputs}/more@800"],
        outputs=outputs,
        train={"steps": 2},
    )
    lock(inputs)
    before = state(inputs)
    watched.append(inputs)
    heal(config, tmp_path / "store")
    assert changes == []
    assert state(inputs) == before
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_a_checkpoints_folder_stays_as_it_is(inputs: Path, tmp_path: Path) -> None:
    place = Place(inputs, "qwen3_5", Wishes())
    lock(inputs)
    before = state(inputs)
    watched.append(inputs)
    place.root = tmp_path
    data = [{"path": str(inputs / "own.jsonl"), "name": "own"}]
    train = {"depth": 1, "lr": 1e-2, "steps": 2, "batch": 4, "eval_every": 2}
    place.heal(data=data, train=train, outputs=[place.output("keep", "out")])
    assert changes == []
    assert state(inputs) == before
    # Nor does what comes out share files with what went in.
    given = {path.stat().st_ino for path in place.student.iterdir()}
    out = {path.stat().st_ino for path in (tmp_path / "out").iterdir()}
    assert out
    assert not given & out
