"""Model files by the digests that recipes name, from what the store remembers of files."""

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from store.digests import read_remembered
from ui.inspector.depot import Depot, Entry, NotHere

PARTS = ("content", "trunk", "draft")  # what of a model a digest can be of
# Inputs of stages that are model files or a part of one.
MODEL_INPUTS = frozenset({"model", "student", "trunk", "draft", "init"})


@dataclass(frozen=True)
class ModelFile:
    """A model file that has, or had when it was last read, the content asked for."""

    path: Path
    part: str  # one of PARTS
    is_there: bool  # and as it was then
    entry: Entry | None  # the artifact that holds it, of a file in the store

    @property
    def of(self) -> str:
        """What of the file an input is: `the trunk of`, or nothing of the whole."""
        return "" if self.part == "content" else f"the {self.part} of"


def model_files(depot: Depot) -> dict[str, tuple[ModelFile, ...]]:
    """Every file the store knows the parts of, by the digest of each, the oldest first.

    A file elsewhere is told only where no artifact here holds the same.
    """
    found: dict[str, list[tuple[int, ModelFile]]] = defaultdict(list)
    for path in (depot.root / "digests").glob("*.json"):
        try:
            status = path.stat()
        except OSError:
            continue
        for digest, part, file, identity in _remembered(
            path, status.st_mtime_ns, status.st_size
        ):
            found[digest].append((identity[1], _file(depot, file, part, identity)))
    return {digest: _told(files) for digest, files in found.items()}


def _told(files: list[tuple[int, ModelFile]]) -> tuple[ModelFile, ...]:
    by_age = [file for _, file in sorted(files, key=lambda pair: pair[0])]
    return tuple(file for file in by_age if file.entry is not None) or tuple(by_age)


@lru_cache(maxsize=4096)
def _remembered(
    path: Path, _mtime_ns: int, _size: int
) -> tuple[tuple[str, str, Path, tuple[int, int]], ...]:
    """(digest, part, file, (size, time)) of a remembered model; empty of any other file."""
    kept = read_remembered(path)
    facts = None if kept is None else kept.facts.get("model")
    if kept is None or not isinstance(facts, dict) or not facts.keys() >= set(PARTS):
        return ()
    identity = (kept.size, kept.mtime_ns)
    return tuple((str(facts[part]), part, kept.path, identity) for part in PARTS)


def _file(depot: Depot, path: Path, part: str, identity: tuple[int, int]) -> ModelFile:
    try:
        status = path.stat()
        is_there = (status.st_size, status.st_mtime_ns) == identity
    except OSError:
        is_there = False
    entry = None
    if path.is_relative_to(depot.root.resolve()) and len(path.parts) > 2:
        try:
            entry = depot.entry(*path.parts[-3:-1])
        except NotHere:
            entry = None
    return ModelFile(path, part, is_there, entry)
