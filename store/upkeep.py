"""Looking after a store: what lies in it, whether it is whole, and taking things out."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from store.artifact import Artifact
from store.errors import ArtifactDamaged, ArtifactError, BadName, UnknownName
from store.keys import RESERVED, checked_key, checked_stage
from store.manifest import RECORD, Manifest
from store.space import bytes_in
from store.store import Problems, Store

ItemState = Literal["finished", "unfinished", "damaged"]


@dataclass(frozen=True)
class Item:
    """One artifact's folder, finished or not; without `manifest` it cannot be read."""

    stage: str
    key: str
    path: Path
    state: ItemState
    size_bytes: int
    changed: float  # seconds since 1970: when it was finished, or last written to
    manifest: Manifest | None = None
    problem: str | None = None

    @property
    def name(self) -> str:
        """`"stage/key"`."""
        return f"{self.stage}/{self.key}"


def items(store: Store) -> list[Item]:
    """Every artifact's folder of a store, by stage and key."""
    return [
        _item(store, path)
        for path in sorted(store.root.glob("*/*/"))
        if path.parent.name not in RESERVED and _is_named(path)
    ]


def _is_named(path: Path) -> bool:
    try:
        checked_stage(path.parent.name)
        checked_key(path.name)
    except BadName:
        return False
    return True


def _item(store: Store, path: Path) -> Item:
    stage, key = path.parent.name, path.name
    state: ItemState = "unfinished"
    artifact, problem = None, None
    try:
        artifact = store.load(stage, key)
        state = "unfinished" if artifact is None else "finished"
    except ArtifactDamaged as error:
        state, problem = "damaged", str(error)
    record = path / RECORD
    changed = (record if record.exists() else path).stat().st_mtime
    manifest = None if artifact is None else artifact.manifest
    return Item(stage, key, path, state, bytes_in(path), changed, manifest, problem)


def chosen(listed: Sequence[Item], name: str) -> list[Item]:
    """The items a user names: a stage's all, or one by the beginning of its key.

    UnknownName if nothing is called so, or several keys begin so.
    """
    whole = [item for item in listed if item.stage == name]
    if whole:
        return whole
    found = [item for item in listed if item.name.startswith(name) and "/" in name]
    found += [item for item in listed if item.key.startswith(name)]
    if not found:
        raise UnknownName(
            f"no artifact is called {name!r}; heal store ls lists their names"
        )
    if len(found) > 1:
        raise UnknownName(
            f"{name!r} begins the names of {len(found)} artifacts; give more of the key, "
            "or the stage alone for all of it"
        )
    return found


def verify(
    store: Store,
    listed: Sequence[Item],
    *,
    is_deep: bool,
    seen: Callable[[Item], None] = lambda _: None,
) -> dict[str, Problems]:
    """What is wrong, by "stage/key"; `is_deep` reads every byte once. `seen` hears each."""
    # A new store has read nothing yet; it reads a part of several only once.
    look = Store(store.root).damage_before_use if is_deep else store.damage
    found: dict[str, Problems] = {}
    for item in listed:
        if item.problem is not None:
            found[item.name] = [item.problem]
        elif item.manifest is not None:
            found |= look(Artifact(item.stage, item.key, item.path, item.manifest))
        seen(item)
    return found


def remove(
    store: Store, listed: Sequence[Item], doomed: Sequence[Item], *, is_forced: bool
) -> None:
    """Deletes artifacts, all or none.

    ArtifactError if one is being made, or is a part of one that stays; `is_forced` deletes
    even so.
    """
    if not is_forced:
        for name, whole in _missed(listed, doomed):
            raise ArtifactError(
                f"{name} is a part of {whole}; remove that too, or use --force"
            )
    with ExitStack() as locks:
        if not is_forced:
            for item in doomed:
                locks.enter_context(store.hold(item.stage, item.key, _refusal(item)))
        for item in doomed:
            # The record first: half an artifact must never look like a finished one.
            (item.path / RECORD).unlink(missing_ok=True)
            shutil.rmtree(item.path)


def clear_damaged(store: Store) -> int:
    """Deletes what was set aside as damaged; how many bytes that were."""
    folder = store.root / "damaged"
    if not folder.exists():
        return 0
    size = bytes_in(folder)
    shutil.rmtree(folder)
    return size


def _missed(listed: Sequence[Item], doomed: Sequence[Item]) -> Iterator[tuple[str, str]]:
    """Each part that would go while what refers to it stays: its name, the other's."""
    names = {item.name for item in doomed}
    for item in listed:
        if item.manifest is not None and item.name not in names:
            for part in item.manifest.parts:
                if part in names:
                    yield part, item.name


def _refusal(item: Item) -> Callable[[], None]:
    def refuse() -> None:
        raise ArtifactError(
            f"{item.name} is being made by a run (heal status); wait for it, or use --force"
        )

    return refuse
