"""Which artifacts runs are reading, so that none is freed under their hands.

Whoever makes an artifact holds its lock, and writes into that lock file what it reads. The
gate lets nobody free between the last look at an input and the word that it is in use.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from store.artifact import Artifact
from store.errors import ArtifactDamaged, BadName
from store.keys import split_name
from store.locks import Hold
from store.store import Store


def gate(store: Store, *, alone: bool) -> AbstractContextManager[None]:
    """Held together by those that announce, and `alone` by who frees; for milliseconds."""
    return store.locks.gate(alone=alone)


def take_hold(store: Store, hold: Hold, inputs: object) -> bool:
    """Whether every input of a stage is still there, now that nobody may free it any more.

    `hold` is the lock that the caller holds for what it makes.
    """
    read = artifacts_in(inputs, store)
    with gate(store, alone=False):
        hold.announce(read)
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


def in_use(store: Store, *, waits: bool = False) -> set[str]:
    """The artifacts that are being made now, and those read for that, as "stage/key".

    `waits` for seeing which leases stand still; without, a dead holder's still count.
    """
    announced = store.locks.announced(waits=waits)
    every = {*announced, *(name for said in announced.values() for name in said)}
    return {*filter(_is_name, every)}


def _is_name(name: str) -> bool:
    try:
        split_name(name)
    except BadName:
        return False
    return True
