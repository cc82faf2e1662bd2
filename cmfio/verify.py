"""Compare every hash a container recorded with the bytes it holds (cmf.md §3)."""

from collections.abc import Iterator

from cmfio.hash64 import hash64
from cmfio.reader import Container, ShardFile


def verify(container: Container) -> list[str]:
    """The problems found, in file order, none for an intact model. Reads all of it."""
    problems = [line for file in container.files for line in _section_problems(file)]
    for name, entry in container.entries.items():
        actual = hash64(container.payload(name))
        if actual != entry.hash64:
            path = container.files[entry.shard].path
            problems.append(f"{path}: tensor {name!r}: {_mismatch(entry.hash64, actual)}")
    return problems


def _section_problems(file: ShardFile) -> Iterator[str]:
    stored = {"header": file.envelope.header_hash, "dir": file.envelope.directory_hash}
    recorded = file.header.section_hashes
    for name in file.trailing() if recorded is not None else ():
        text = getattr(recorded, name)
        try:
            stored[name] = 0 if text is None else int(text, 16)
        except ValueError:
            yield f"{file.path}: section {name!r}: its recorded hash {text!r} isn't hex"
    for name, expected in stored.items():
        actual = hash64(file.section(name))
        if expected not in (0, actual):
            yield f"{file.path}: section {name!r}: {_mismatch(expected, actual)}"


def _mismatch(stored: int, actual: int) -> str:
    return f"hash mismatch (stored {stored:016x}, actual {actual:016x})"
