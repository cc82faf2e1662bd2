"""Where the holder of a lock fills an artifact, and how that becomes the artifact.

Under flock nobody else can be at work, so it is filled in its place. A lease may be lost to
another while its holder sleeps; each holder then has a folder of its own, and what one that
was taken over still writes reaches nobody.
"""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from store.atomic import flush
from store.errors import LeaseLost
from store.locks import Hold
from store.manifest import RECORD
from store.store import Store

FILLING = "filling"


@dataclass(frozen=True)
class Unplaced:
    """A folder that a holder of a lease fills, or once filled."""

    stage: str
    key: str
    path: Path


def fill_folder(store: Store, stage: str, key: str, hold: Hold) -> Path:
    """The folder to fill, with what the last holder left to resume from."""
    place = store.path(stage, key)
    if hold.own_folder is None:
        return place
    mine = store.root / FILLING / f"{stage}-{key}-{hold.own_folder}"
    mine.parent.mkdir(parents=True, exist_ok=True)
    left = [one.path for one in unplaced(store) if (one.stage, one.key) == (stage, key)]
    for path in (*sorted(left, key=_changed, reverse=True), place):
        if mine.exists():
            _to_trash(store, path)
        else:
            with suppress(FileNotFoundError):
                path.rename(mine)
    return mine


def place_filled(store: Store, stage: str, key: str, folder: Path, hold: Hold) -> None:
    """Make what was filled and sealed the artifact's folder; its record is still to come.

    LeaseLost if another took the lock over, or has finished the same meanwhile.
    """
    hold.confirm()
    place = store.path(stage, key)
    if folder == place:
        return
    if (place / RECORD).exists():
        raise LeaseLost(f"{stage}/{key}", str(store.root))
    if place.exists():
        _to_trash(store, place)
    place.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(place)
    flush(place.parent)


def unplaced(store: Store) -> Iterator[Unplaced]:
    """Every folder that is being filled under a lease, or was when its run broke off."""
    for path in sorted((store.root / FILLING).glob("*-*-*")):
        stage, key, _ = path.name.split("-", 2)
        yield Unplaced(stage, key, path)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _to_trash(store: Store, path: Path) -> None:
    """Out of the way in one step, then deleted."""
    trash = store.root / "trash"
    trash.mkdir(exist_ok=True)
    names = (trash / f"{path.name}-{number}" for number in count(1))
    with suppress(FileNotFoundError):  # its last holder, who woke up, cleared it himself
        gone = path.rename(next(name for name in names if not name.exists()))
        shutil.rmtree(gone, ignore_errors=True)
