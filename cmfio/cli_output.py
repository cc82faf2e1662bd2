"""What all `cmf` commands share: how they speak, fail, and show that they are alive."""

import contextlib
import errno
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO, cast

import typer

from cmfio.errors import BadPath, CmfError, CmfIoError, DamagedTensor
from cmfio.opening import reason

EXIT_FAILURE = 1
EXIT_BAD_INPUT = 2
FIRST_LINE_S, LINE_EVERY_S = 2.0, 5.0


@contextmanager
def speaking() -> Iterator[None]:
    """Turn the room's errors into one line on stderr and an exit code."""
    try:
        yield
    except BadPath as error:
        complain(str(error))
        raise typer.Exit(EXIT_BAD_INPUT) from None
    except CmfError as error:
        complain(str(error))
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
            complain(str(error))
        raise typer.Exit(EXIT_BAD_INPUT) from None


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """How far a command is, on stderr: a bar on a terminal, else now and then a line."""
    stream = _opened(sys.stderr)
    if stream is None or not stream.isatty():
        with _lines(title) as on_progress:
            yield on_progress
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(escape(printable(title)))
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextmanager
def _lines(title: str) -> Iterator[Callable[[int, int], None]]:
    """Says on stderr what takes longer than `FIRST_LINE_S`, then at times how far it is."""
    first = threading.Timer(FIRST_LINE_S, complain, (f"{title} …",))
    first.daemon = True
    due = time.monotonic() + FIRST_LINE_S + LINE_EVERY_S

    def on_progress(done: int, total: int) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due and done < total:
            due = now + LINE_EVERY_S
            complain(f"{title}: {done / total:.0%}")

    first.start()
    try:
        yield on_progress
    finally:
        first.cancel()


def say(*lines: str) -> None:
    """Lines on stdout, made `printable`; exit 1 if they can't be written."""
    text = "".join(printable(line) + "\n" for line in lines)
    try:
        _write(text)
    except BrokenPipeError:  # whoever reads has had enough
        raise typer.Exit(EXIT_FAILURE) from None
    except OSError as error:
        complain(f"standard output: can't be written: {reason(error)}")
        raise typer.Exit(EXIT_FAILURE) from None


def complain(text: str) -> None:
    """A line on stderr, made `printable`, if there is one."""
    stream = _opened(sys.stderr)
    if stream is not None:
        with contextlib.suppress(OSError):
            stream.write(f"cmf: {printable(text)}\n")


def printable(text: str) -> str:
    """`text` on one line: whatever isn't printable, newlines too, is escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def _write(text: str) -> None:
    stream = _opened(sys.stdout)
    if stream is None:
        raise OSError(errno.EBADF, "it is closed")
    stream.flush()
    # Past Python's buffer: what stays there, refused, is tried again when the process ends.
    raw = getattr(stream.buffer, "raw", stream.buffer)
    left = memoryview(text.encode(stream.encoding, "backslashreplace"))
    while left:
        written = raw.write(left)
        if written is None:  # a pipe that was set not to wait
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        left = left[written:]


def _opened(stream: TextIO) -> TextIO | None:
    """None where the process was started without that stream."""
    return cast("TextIO | None", stream)
