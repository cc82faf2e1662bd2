"""Which artifacts runs are reading, so that none is freed under their hands.

Whoever makes an artifact holds its lock, and writes into that lock file what it reads. The
gate lets nobody free between the last look at an input and the word that it is in use.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from store.artifact import Artifact
from store.errors import ArtifactDamaged, BadName
from store.keys import split_name
from store.store import Store

GATE = "gate"


@contextmanager
def gate(store: Store, *, alone: bool) -> Iterator[None]:
    """Held together by those that announce, and `alone` by who frees; for milliseconds."""
    path = store.root / "locks" / GATE
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def take_hold(store: Store, lock: Path, inputs: object) -> bool:
    """Whether every input of a stage is still there, now that nobody may free it any more.

    `lock` is the lock file that the caller holds for what it makes.
    """
    read = artifacts_in(inputs, store)
    with gate(store, alone=False):
        announce(lock, read)
        return all(store.path(*split_name(name)).exists() for name in read)


def artifacts_in(value: object, store: Store) -> set[str]:
    """The artifacts, with their parts, that a stage's inputs lie in, as "stage/key"."""
    if isinstance(value, Artifact):
        names = {value.name, *value.manifest.parts}
        try:
            return names.union(*(artifacts_in(one, store) for one in store.parts(value)))
        except ArtifactDamaged:
            return names  # a part that is gone: whoever asks looks whether all are there
    if isinstance(value, Mapping):
        return artifacts_in(list(value.values()), store)
    if isinstance(value, list | tuple):
        return {name for one in value for name in artifacts_in(one, store)}
    # A model inside an artifact: a stage is handed its file.
    folders = (getattr(value, name, None) for name in ("path", "patch"))
    return {name for path in folders if (name := _artifact_around(path, store))}


def _artifact_around(path: object, store: Store) -> str | None:
    if not isinstance(path, Path) or not path.absolute().is_relative_to(store.root):
        return None
    name = "/".join(path.absolute().relative_to(store.root).parts[:2])
    return name if _is_name(name) else None


def announce(lock: Path, names: Iterable[str]) -> None:
    """Say, as the holder of a lock file, which artifacts ("stage/key") are being read."""
    lock.write_text("".join(f"{name}\n" for name in names))


def in_use(store: Store) -> set[str]:
    """The artifacts that are being made now, and those read for that, as "stage/key"."""
    found: set[str] = set()
    for path in store.root.glob("locks/*/*.lock"):
        said = _said_if_held(path)
        if said is not None:
            found |= {f"{path.parent.name}/{path.stem}", *filter(_is_name, said)}
    return found


def _said_if_held(path: Path) -> list[str] | None:
    """What its holder announced; None for a lock that nobody holds."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return path.read_text(errors="replace").split()
    finally:
        os.close(handle)
    return None


def _is_name(name: str) -> bool:
    try:
        split_name(name)
    except BadName:
        return False
    return True
