"""sha256 of files, and other facts about them, paid for once a file."""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from store.atomic import write_whole
from store.keys import plain_json

BLOCK_BYTES = 4 << 20
CLOCK_TICK_NS = 20_000_000  # file times move in steps of up to 10 ms
# The clock Linux takes file times from, which Python has no name for.
FILE_CLOCK = 5 if sys.platform == "linux" else None

Progress = Callable[[int, int], None]  # bytes read so far, bytes in all


def sha256_of(path: Path, progress: Progress | None = None) -> str:
    """sha256 of a file's bytes, read now, in hex."""
    digest = hashlib.sha256()
    block = memoryview(bytearray(BLOCK_BYTES))
    with path.open("rb", buffering=0) as file:
        total, done = os.fstat(file.fileno()).st_size, 0
        while count := file.readinto(block):
            digest.update(block[:count])
            done += count
            if progress is not None:
                progress(done, total)
    return digest.hexdigest()


def settle(mtime_ns: int) -> None:
    """Wait until the clock is past a file time, so that a later write must show in it."""
    if FILE_CLOCK is None:
        early = mtime_ns + CLOCK_TICK_NS - time.time_ns()
        if 0 < early <= CLOCK_TICK_NS:
            time.sleep(early / 1e9)
        return
    while 0 <= mtime_ns - time.clock_gettime_ns(FILE_CLOCK) <= CLOCK_TICK_NS:
        time.sleep(0.0005)


@dataclass(frozen=True)
class Remembered:
    """Facts about a file as it was when it had this size (bytes) and time."""

    path: Path
    size: int
    mtime_ns: int
    facts: Mapping[str, JsonValue]


def read_remembered(entry: Path) -> Remembered | None:
    """What one small file of a `FileDigests` holds; None if it can't be read as one."""
    try:
        kept = json.loads(entry.read_bytes())
        file, facts = kept["file"], dict(kept["facts"])
        path = Path(os.fsdecode(bytes.fromhex(file["path"])))
        return Remembered(path, int(file["size"]), int(file["mtime_ns"]), facts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


class FileDigests:
    """Facts about files by real path, size, mtime and inode, in one small file each.

    A memory only: if it cannot be written (read-only store, full disk), facts are found
    anew. With `keeps` false nothing new is written.
    """

    def __init__(self, root: Path, *, keeps: bool = True) -> None:
        self.root = root
        self.keeps = keeps

    def sha256(self, path: Path, progress: Progress | None = None) -> str:
        """sha256 of the file; read only if it changed since it was last asked for."""
        known = self.recall(path, "sha256")
        if isinstance(known, str):
            return known
        before = _identity(path)
        settle(path.stat().st_mtime_ns)
        digest = sha256_of(path, progress)
        if _identity(path) == before:
            self._store(before, "sha256", digest)
        return digest

    def remember(self, path: Path, name: str, value: JsonValue) -> None:
        """Keep a fact about the file as it is now."""
        settle(path.stat().st_mtime_ns)
        self._store(_identity(path), name, plain_json(value, name))

    def recall(self, path: Path, name: str) -> JsonValue:
        """The fact kept under `name`; None if there is none or the file changed since."""
        return self._facts(_identity(path)).get(name)

    def _facts(self, identity: dict[str, JsonValue]) -> dict[str, JsonValue]:
        try:
            entry = json.loads(self._entry(identity).read_bytes())
        except (OSError, ValueError):
            return {}
        if not isinstance(entry, dict) or entry.get("file") != identity:
            return {}
        facts = entry.get("facts")
        return facts if isinstance(facts, dict) else {}

    def _store(self, identity: dict[str, JsonValue], name: str, value: JsonValue) -> None:
        if not self.keeps:
            return
        facts = self._facts(identity) | {name: value}
        entry = self._entry(identity)
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            write_whole(entry, json.dumps({"file": identity, "facts": facts}).encode())
        except OSError:
            return  # a memory that cannot be kept costs time, never a result

    def _entry(self, identity: dict[str, JsonValue]) -> Path:
        real = bytes.fromhex(str(identity["path"]))
        return self.root / f"{hashlib.sha256(real).hexdigest()[:32]}.json"


def _identity(path: Path) -> dict[str, JsonValue]:
    real = path.resolve()
    stat = real.stat()
    return {
        "path": os.fsencode(real).hex(),
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "inode": stat.st_ino,
    }
