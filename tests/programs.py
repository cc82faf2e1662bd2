"""Other processes and threads that tests set against each other."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parents[1]
Process: TypeAlias = "subprocess.Popen[str]"


@contextmanager
def running(
    program: Path, *arguments: object, within: Sequence[str] = ()
) -> Iterator[Process]:
    """This program with these arguments, `within` another; killed on the way out."""
    with subprocess.Popen(
        [*within, sys.executable, str(program), *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "DO_NOT_TRACK": "1"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: Process) -> str:
    """What it says next on stderr."""
    assert process.stderr is not None
    return process.stderr.readline().strip()


def most_inside(hold: Callable[[], AbstractContextManager[object]], rounds: int) -> int:
    """How many of four threads, each entering so many times, were inside at once."""
    inside, most = [0], [0]

    def work() -> None:
        for _ in range(rounds):
            with hold():
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return most[0]
