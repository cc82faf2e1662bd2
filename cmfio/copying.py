"""Bytes into a file: one thread writes while the next are read, made and hashed."""

import os
import shutil
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from cmfio.errors import BoundsError
from cmfio.hash64 import Bytes, Hash64

CHUNK_BYTES = 1 << 22
AHEAD = 4  # chunks that may wait to be written


@dataclass(frozen=True)
class FileRange:
    """A stretch of another file, open for reading; `path` is for errors only."""

    path: Path
    handle: int
    offset: int
    nbytes: int


def part(source: FileRange, start: int, length: int = CHUNK_BYTES) -> FileRange:
    """The stretch of `source` from `start` on, `length` long or up to its end."""
    left = min(length, source.nbytes - start)
    return replace(source, offset=source.offset + start, nbytes=left)


def read_range(source: FileRange) -> bytearray:
    """All bytes of a stretch; BoundsError if the file was cut short meanwhile."""
    data = bytearray(source.nbytes)
    _fill(memoryview(data), source, source.offset)
    return data


def copy_file(source: Path, out: Path) -> None:
    """A new file with the same bytes, synced; blocks are shared where the system can.

    It is a file of its own: nothing done to one is seen in the other.
    """
    with source.open("rb", buffering=0) as origin, out.open("xb", buffering=0) as copy:
        size = os.fstat(origin.fileno()).st_size
        whole = FileRange(source, origin.fileno(), 0, size)
        done = _copied_by_kernel(whole, copy.fileno(), 0)
        origin.seek(done)
        copy.seek(done)
        shutil.copyfileobj(origin, copy, CHUNK_BYTES)
        os.fsync(copy.fileno())


class BackgroundWriter:
    """Puts bytes at their places in a file, up to `AHEAD` chunks behind its caller.

    Use it in a `with`: at its end all is written. What the system refuses is raised by a
    later call or at the end, as OSError.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._thread = ThreadPoolExecutor(1)
        self._waiting: deque[Future[None]] = deque()
        # Untouched memory costs nothing: without a FileRange these stay empty pages.
        self._buffers = [bytearray(CHUNK_BYTES) for _ in range(AHEAD)]
        self._turn = 0
        self._kernel_copies = True

    def put(self, data: Bytes | FileRange, place: int) -> int:
        """The hash64 of `data`, which is written from `place` on."""
        running = Hash64()
        if isinstance(data, FileRange):
            for start, chunk in self._read(data):
                self._submit(chunk, place + start, part(data, start, len(chunk)))
                running.update(chunk)
            return running.value()
        view = memoryview(data).cast("B")
        for start in range(0, len(view), CHUNK_BYTES):
            chunk = view[start : start + CHUNK_BYTES]
            self._submit(chunk, place + start)
            running.update(chunk)
        return running.value()

    def _read(self, source: FileRange) -> Iterator[tuple[int, memoryview]]:
        for start in range(0, source.nbytes, CHUNK_BYTES):
            self._wait_for_room()  # so this buffer's last chunk is written
            length = min(CHUNK_BYTES, source.nbytes - start)
            chunk = memoryview(self._buffers[self._turn % AHEAD])[:length]
            _fill(chunk, source, source.offset + start)
            yield start, chunk

    def _submit(
        self, chunk: memoryview, place: int, origin: FileRange | None = None
    ) -> None:
        self._wait_for_room()
        self._turn += 1
        self._waiting.append(self._thread.submit(self._write, chunk, place, origin))

    def _wait_for_room(self) -> None:
        while len(self._waiting) >= AHEAD:
            self._waiting.popleft().result()

    def _write(self, chunk: memoryview, place: int, origin: FileRange | None) -> None:
        done = 0
        if origin is not None and self._kernel_copies:
            done = _copied_by_kernel(origin, self._handle, place)
            self._kernel_copies = done == origin.nbytes
        while done < len(chunk):
            done += os.pwrite(self._handle, chunk[done:], place + done)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            while self._waiting and error is None:
                self._waiting.popleft().result()
        finally:
            self._thread.shutdown(wait=True, cancel_futures=True)


def _copied_by_kernel(origin: FileRange, handle: int, place: int) -> int:
    """How many bytes, from the first on, the kernel copied to `place`: none where it can't.

    A file system that shares blocks between files then copies nothing at all.
    """
    done = 0
    while done < origin.nbytes:
        try:
            count = os.copy_file_range(
                origin.handle,
                handle,
                origin.nbytes - done,
                origin.offset + done,
                place + done,
            )
        except OSError:  # two file systems, or one without the call: the caller writes
            break
        if count == 0:
            break
        done += count
    return done


def _fill(chunk: memoryview, source: FileRange, offset: int) -> None:
    done = 0
    while done < len(chunk):
        count = os.preadv(source.handle, [chunk[done:]], offset + done)
        if count == 0:
            raise BoundsError(f"{source.path}: was cut short while it was being copied")
        done += count
