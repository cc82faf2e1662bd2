"""Files that appear whole or not at all."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; on success it is on disk and renamed to `path`."""
    beside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        yield beside
        flush(beside)
        beside.replace(path)
        flush(path.parent)
    finally:
        beside.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader sees the old file or all of the new one."""
    with whole_file(path) as beside:
        beside.write_bytes(data)


def replace_whole(path: Path, data: bytes) -> None:
    """`write_whole` for what only tells of a run: whole to every reader, not flushed.

    Waiting for the disk costs more than what a power cut would lose here.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Wait until a file's or folder's content is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
