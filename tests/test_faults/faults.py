"""A real process that runs a real command and meets one fault at one exact place.

The fault strikes when the process is about to open or rename a file: Python tells an audit
hook of both before they happen, whoever asks for it. The product knows nothing of this.
"""

import fnmatch
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
BLOCK = bytes(1 << 16)


@dataclass(frozen=True)
class Fault:
    """What happens at the `nth` time that `event` is about to befall a file.

    `kill`: SIGKILL. `hold`: wait for `folder/go`, once `folder/held` says so. `fill`:
    write `folder/ballast` until the disk is full.
    """

    action: Literal["kill", "hold", "fill"]
    event: Literal["open", "os.rename"]
    pattern: str
    nth: int = 1
    folder: Path = Path()

    def arm(self) -> None:
        left = [self.nth]

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            if event != self.event or not left[0] or not self.means(arguments):
                return
            left[0] -= 1
            if not left[0]:
                self.strike()

        sys.addaudithook(hook)

    def means(self, arguments: tuple[object, ...]) -> bool:
        """A rename to the file, or an open of it to write."""
        if self.event == "os.rename":
            name = arguments[1]
        else:
            name, mode, flags = arguments[:3]
            writes = isinstance(flags, int) and flags & WRITES
            if not writes and not (isinstance(mode, str) and set(mode) & set("wax+")):
                return False
        return isinstance(name, str | os.PathLike) and fnmatch.fnmatch(
            os.fspath(name), self.pattern
        )

    def strike(self) -> None:
        if self.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.action == "fill":
            fill_disk(self.folder)
        else:
            (self.folder / "held").touch()
            wait_for(self.folder / "go")


def fill_disk(folder: Path, *, leaving: int = 0) -> None:
    """Take the room on the disk that holds `folder`, less `leaving` bytes."""
    with (folder / "ballast").open("ab", buffering=0) as ballast:
        try:
            while ballast.write(BLOCK):
                pass
        except OSError:
            ballast.truncate(max(0, ballast.tell() - leaving))


def wait_for(path: Path, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.002)


def run_command(
    program: Literal["heal", "cmf"],
    arguments: Sequence[str],
    folder: Path,
    fault: Fault | None,
) -> None:
    """The body of a process: a command line, what it says kept in `folder`.

    Windows go through the trunk two at a time, so that a shard has several chunks, and
    training keeps every step.
    """
    import cmfio.cli
    import flows.cli
    import tasks.row_source
    import tasks.shard_rows
    import tasks.train

    for name, stream in (("out", 1), ("said", 2)):
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, stream)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    tasks.shard_rows.ROWS_A_CALL = tasks.row_source.ROWS_A_BATCH = 64
    tasks.train.SAVE_EVERY_S = 0.0
    if fault is not None:
        fault.arm()
    app = flows.cli.app if program == "heal" else cmfio.cli.app
    app(list(arguments))
