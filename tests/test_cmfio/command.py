"""The command `cmf`, in this process or as one of its own."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from typer.testing import CliRunner, Result

from cmfio.cli import app

REPO = Path(__file__).parents[2]
PEERS = REPO / "tests" / "peers" / "cmf"
FULL = str(PEERS / "full.cmf")
NOBODY = 65534


def cmf(*words: str | Path) -> Result:
    """The command here: exit code, stdout, stderr; what it doesn't catch is raised."""
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def shell(
    line: str, *words: str | Path, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """A shell's `line`, in which "$@" is the command, with 20 s to run."""
    command = [sys.executable, "-m", "cmfio.cli", *map(str, words)]
    return subprocess.run(
        ["sh", "-c", line, "sh", *command],
        cwd=REPO,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


@contextlib.contextmanager
def without_power() -> Iterator[None]:
    """As a user who may not read or write everything; tests may run as root."""
    own = os.geteuid()
    if own == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(own)
