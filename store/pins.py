"""Artifacts and runs that a user wants kept whatever becomes old, one empty file each."""

from collections.abc import Sequence
from pathlib import Path

from store.errors import UnknownName
from store.runs import Run, runs
from store.store import Store
from store.upkeep import chosen, items

PINS = "pins"
LAST = "last"


def pinned(store: Store) -> set[str]:
    """Every pinned artifact ("stage/key") and run (its id)."""
    return {path.name.replace("+", "/") for path in (store.root / PINS).glob("*")}


def pin(store: Store, name: str) -> None:
    """Keep an artifact or a run, and what they were made from."""
    place = _place(store, name)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()


def unpin(store: Store, name: str) -> bool:
    """Let it go again; whether it was pinned."""
    place = _place(store, name)
    was_pinned = place.exists()
    place.unlink(missing_ok=True)
    return was_pinned


def runs_called(book: Sequence[Run], name: str) -> list[str]:
    """The ids of the runs that a name, or its beginning, fits; `last` is one that ended.

    `book`: the store's runs, newest first. UnknownName for `last` where none has ended.
    """
    if name == LAST:
        done = [run.record.id for run in book if run.record.report is not None]
        if not done:
            raise UnknownName("no run in this store has finished; heal status lists them")
        return done[:1]
    ids = [run.record.id for run in book]
    return [one for one in ids if one == name] or [i for i in ids if i.startswith(name)]


def name_of(store: Store, name: str) -> str:
    """The run's id or the artifact's name that a user means; UnknownName for neither.

    `last` is the newest run that came to its end.
    """
    fitting = runs_called(runs(store.root), name)
    if len(fitting) > 1:
        raise UnknownName(
            f"{name!r} begins the ids of {len(fitting)} runs; give more of it"
        )
    if fitting:
        return fitting[0]
    found = chosen(items(store), name)
    if len(found) > 1:
        raise UnknownName(f"{name!r} is a stage; name one of its {len(found)} artifacts")
    return found[0].name


def _place(store: Store, name: str) -> Path:
    # Only names that exist come here; "+" is in no stage, key or run id.
    return store.root / PINS / name.replace("/", "+")
