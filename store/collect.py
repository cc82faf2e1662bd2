"""Garbage of a store: what nothing wanted reaches any more, and leftovers; freeing it."""

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

from store.filling import unplaced
from store.pins import pinned
from store.reach import Lineage, stages_of
from store.runs import Run, runs
from store.space import bytes_in
from store.store import Store
from store.upkeep import Item, items
from store.using import gate, in_use

TRASH, INCOMING = "trash", "incoming"
GRACE_S = 3600.0  # a run that is in no book (heal doctor, heal fold) may still want it
REPORTS = "report"

Kind = Literal["unreached", "interrupted", "damaged", "forgotten", "trash"]


@dataclass(frozen=True)
class Waste:
    """One thing to free; `name` is "stage/key", or its path below the store's root."""

    kind: Kind
    name: str
    path: Path
    size_bytes: int
    changed: float  # seconds since 1970


@dataclass(frozen=True)
class Sweep:
    """What would be freed, and how many artifacts stay."""

    kept: int
    wastes: tuple[Waste, ...]

    @property
    def size_bytes(self) -> int:
        """What freeing all of it gives."""
        return sum(waste.size_bytes for waste in self.wastes)


def sweep(
    store: Store, keep: int, *, grace_s: float = GRACE_S, waits: bool = False
) -> Sweep:
    """Everything that the last `keep` runs and reports don't reach, and leftovers.

    Kept besides: pins and what they reach, whatever a run makes or reads now, all that a
    running run asked for, and anything not older than `grace_s`. With `waits`, leases are
    watched until it is known whose holders are dead.
    """
    listed = items(store)
    book = runs(store.root)
    lineage = Lineage(listed, models_in(store, listed))
    used = in_use(store, waits=waits)
    wanted = lineage.behind(_roots(store, listed, book, keep) | used)
    young = time.time() - grace_s
    rest = [i for i in listed if i.name not in wanted and i.changed <= young]
    wastes = [_waste(item) for item in rest]
    return Sweep(
        len(listed) - len(rest),
        (*wastes, *_broken_off(store, used, young), *_leftovers(store, young)),
    )


def free(store: Store, found: Sweep) -> Sweep:
    """Frees what was found, but for what a run began to use since; what was freed.

    Moved away in one go, under a gate that no run can pass between checking an input and
    saying that it reads it; then deleted.
    """
    gone, trash = [], []
    with gate(store, alone=True):
        used = in_use(store).union(*map(stages_of, _running(runs(store.root))))
        for waste in found.wastes:
            if waste.name in used or not waste.path.exists():
                continue
            trash.append(_moved(store, waste))
            gone.append(waste)
    for path in trash:
        _delete(path)
    return Sweep(found.kept + len(found.wastes) - len(gone), tuple(gone))


def models_in(store: Store, listed: Sequence[Item]) -> dict[str, list[str]]:
    """The artifacts that hold a model file, by the digests that file is known by."""
    found: dict[str, list[str]] = {}
    for item in listed:
        for name in () if item.manifest is None else item.manifest.files:
            if not name.endswith(".cmf"):
                continue
            try:
                facts = store.digests.recall(item.path / name, "model")
            except OSError:
                continue  # a file that is gone is for verify to tell of
            for part in ("content", "draft"):
                digest = facts.get(part) if isinstance(facts, dict) else None
                if isinstance(digest, str):
                    found.setdefault(digest, []).append(item.name)
    return found


def _roots(
    store: Store, listed: Sequence[Item], book: Sequence[Run], keep: int
) -> set[str]:
    reports = [i for i in listed if i.stage == REPORTS and i.state == "finished"]
    latest = sorted(reports, key=lambda item: item.changed, reverse=True)[:keep]
    ended = [run for run in book if run.state != "running"][:keep]
    pins = pinned(store)
    held = [run for run in book if run.record.id in pins]
    told = (stages_of(run) for run in (*ended, *held, *_running(book)))
    return pins.union({item.name for item in latest}, *told)


def _running(book: Sequence[Run]) -> list[Run]:
    return [run for run in book if run.state == "running"]


def _waste(item: Item) -> Waste:
    kinds: dict[str, Kind] = {"finished": "unreached", "unfinished": "interrupted"}
    kind = kinds.get(item.state, "damaged")
    return Waste(kind, item.name, item.path, item.size_bytes, item.changed)


def _broken_off(store: Store, used: set[str], young: float) -> Iterator[Waste]:
    """What was being filled under leases whose holders are dead or gave it up."""
    for one in unplaced(store):
        name = f"{one.stage}/{one.key}"
        changed = one.path.stat().st_mtime
        if name not in used and changed <= young:
            yield Waste("interrupted", name, one.path, bytes_in(one.path), changed)


def _leftovers(store: Store, young: float) -> Iterator[Waste]:
    """What was set aside or given up, and memories of files that are gone."""
    places: dict[str, Kind] = {"damaged": "damaged", TRASH: "trash", INCOMING: "trash"}
    for folder, kind in places.items():
        for path in sorted((store.root / folder).glob("*")):
            changed = path.stat().st_mtime
            if changed <= young or folder == TRASH:
                yield Waste(kind, f"{folder}/{path.name}", path, bytes_in(path), changed)
    for path in sorted((store.root / "digests").glob("*.json")):
        if _is_forgotten(path):
            status = path.stat()
            name = f"digests/{path.name}"
            yield Waste("forgotten", name, path, status.st_size, status.st_mtime)


def _is_forgotten(entry: Path) -> bool:
    """Whether a remembered digest is of a file that is no longer there, or unreadable."""
    try:
        named = bytes.fromhex(json.loads(entry.read_bytes())["file"]["path"])
    except OSError:
        return False
    except (ValueError, KeyError, TypeError):
        return True
    return not os.path.lexists(named)


def _moved(store: Store, waste: Waste) -> Path:
    """Where it lies now, out of every reader's way."""
    folder = store.root / TRASH
    if waste.path.parent == folder or not waste.path.is_dir():
        return waste.path
    folder.mkdir(exist_ok=True)
    names = (folder / f"{waste.name.replace('/', '-')}-{n}" for n in count(1))
    return waste.path.rename(next(path for path in names if not path.exists()))


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
