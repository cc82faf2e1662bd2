"""What all `cmf` commands share: how they speak, fail, and show that they are alive."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from cmfio.errors import CmfError, CmfIoError, DamagedTensor

EXIT_FAILURE = 1
EXIT_BAD_INPUT = 2


@contextmanager
def speaking() -> Iterator[None]:
    """Turn the room's errors into one line on stderr and an exit code."""
    try:
        yield
    except CmfError as error:
        sys.stderr.write(f"cmf: {error}\n")
        failed = isinstance(error, CmfIoError | DamagedTensor)
        raise typer.Exit(EXIT_FAILURE if failed else EXIT_BAD_INPUT) from None


@contextmanager
def refusing(*, as_json: bool) -> Iterator[None]:
    """As `speaking`, for `verify`: any error is a refusal, in JSON where that is asked."""
    try:
        yield
    except CmfError as error:
        if as_json:
            told = {"kind": error.kind, "message": str(error)}
            say(json.dumps({"error": told, "problems": []}))
        else:
            sys.stderr.write(f"cmf: {error}\n")
        raise typer.Exit(EXIT_BAD_INPUT) from None


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on stderr, for a person who is watching; else None."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(title)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def say(text: str) -> None:
    """A line on stdout."""
    sys.stdout.write(text + "\n")
