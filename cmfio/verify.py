"""Compare every hash a container recorded with the bytes it holds."""

from collections.abc import Iterable

from cmfio.copying import CHUNK_BYTES
from cmfio.errors import DamagedTensor
from cmfio.hash64 import Hash64
from cmfio.layout import Progress
from cmfio.reader import Container, ShardFile


def verify(container: Container, progress: Progress | None = None) -> list[str]:
    """The problems found, in file order, none for an intact model. Reads all of it.

    Every damaged tensor is named, and the sections of every shard are checked. `progress`
    hears (bytes done, bytes in all) of the tensors.
    """
    problems = [
        line for file in container.files for line in _section_problems(file).values()
    ]
    total = sum(entry.nbytes for entry in container.entries.values())
    done = 0
    for name, entry in container.entries.items():
        actual = _hash(container.chunks(name))
        if actual != entry.hash64:
            path = container.files[entry.shard].path
            problems.append(f"{path}: tensor {name!r}: {_mismatch(entry.hash64, actual)}")
        done += entry.nbytes
        if progress is not None:
            progress(done, total)
    return problems


def check_tensor(container: Container, name: str) -> None:
    """DamagedTensor unless a tensor's bytes have their recorded hash. Reads all of it."""
    stored = container.entry(name).hash64
    actual = _hash(container.chunks(name))
    if actual != stored:
        raise DamagedTensor(
            f"{container.path}: tensor {name!r}: {_mismatch(stored, actual)}; the file is "
            "damaged, copy or convert it again"
        )


def check_sections(container: Container, only: str | None = None) -> None:
    """DamagedTensor for a header, directory or other section unlike its recorded hash."""
    for file in container.files:
        for name, problem in _section_problems(file).items():
            if only in (None, name):
                raise DamagedTensor(
                    f"{problem}; the file is damaged, copy or convert it again"
                )


def _section_problems(file: ShardFile) -> dict[str, str]:
    """What is wrong with the sections of one file, by their names."""
    problems = {}
    stored = {"header": file.envelope.header_hash, "dir": file.envelope.directory_hash}
    recorded = file.header.section_hashes
    for name in file.trailing() if recorded is not None else ():
        text = getattr(recorded, name)
        try:
            stored[name] = 0 if text is None else int(text, 16)
        except ValueError:
            problems[name] = (
                f"{file.path}: section {name!r}: its recorded hash {text!r} isn't hex"
            )
    for name, expected in stored.items():
        section = file.section(name)
        actual = _hash(
            section[start : start + CHUNK_BYTES]
            for start in range(0, len(section), CHUNK_BYTES)
        )
        if expected not in (0, actual):
            problems[name] = f"{file.path}: section {name!r}: {_mismatch(expected, actual)}"
    return problems


def _hash(chunks: Iterable[memoryview]) -> int:
    running = Hash64()
    for chunk in chunks:
        running.update(chunk)
    return running.value()


def _mismatch(stored: int, actual: int) -> str:
    return f"hash mismatch (stored {stored:016x}, actual {actual:016x})"
