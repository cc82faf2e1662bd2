"""What pages read of a store: runs, artifacts, reports, each parsed once a change."""

import os
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from fastapi import Depends, Request
from pydantic import ValidationError

from store.artifact import Artifact
from store.errors import ArtifactDamaged, BadName
from store.keys import RESERVED, checked_key, checked_stage
from store.manifest import MANIFEST, RECORD, WORK, Json, Manifest
from store.runs import PROGRESS, Run, read_progress, runs
from store.store import Store
from ui.contents import Report

ReportFile = "report.json"
EntryState = Literal["finished", "unfinished", "damaged"]


class InspectorError(Exception):
    """What a page cannot show, in a sentence for whoever asked for it."""


class NotHere(InspectorError):  # noqa: N818 — a state of the store
    """Nothing of that name is in the store; says what to look at instead."""


class Damaged(InspectorError):  # noqa: N818 — a state of the store
    """It was there, and cannot be read as it was written; says what is wrong."""


@dataclass(frozen=True)
class Entry:
    """One artifact's folder; `manifest` where it is finished, `problem` where damaged."""

    stage: str
    key: str
    path: Path
    state: EntryState
    changed: float  # seconds since 1970
    manifest: Manifest | None = None
    problem: str = ""

    @property
    def name(self) -> str:
        """`"stage/key"`."""
        return f"{self.stage}/{self.key}"

    @property
    def size_bytes(self) -> int:
        """Its own files as the manifest lists them, parts not included; 0 if unfinished."""
        return (
            0
            if self.manifest is None
            else sum(f.size for f in self.manifest.files.values())
        )


@dataclass(frozen=True)
class _Stamp:
    """What a folder's two small files were when they were read."""

    record: tuple[int, int] | None
    manifest: tuple[int, int] | None


class Depot:
    """A store, looked at. Nothing here writes; no array is opened to answer a list."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.store = Store(self.root, keeps=False)
        self._entries: dict[tuple[str, str], tuple[_Stamp, Entry]] = {}
        self._reports: dict[Path, tuple[tuple[int, int] | None, Report]] = {}
        self._lock = threading.Lock()

    def runs(self) -> list[Run]:
        """Every run in the book, newest first."""
        return runs(self.root)

    def entries(self) -> list[Entry]:
        """Every artifact's folder, by stage and key; only changed ones are read again."""
        with self._lock:
            found: dict[tuple[str, str], tuple[_Stamp, Entry]] = {}
            for path in _folders(self.root):
                name = (path.parent.name, path.name)
                stamp = _Stamp(_stamp(path / RECORD), _stamp(path / MANIFEST))
                kept = self._entries.get(name)
                is_same = kept is not None and kept[0] == stamp
                found[name] = kept if is_same and kept else (stamp, self._entry(path))
            self._entries = found
            return [entry for _, entry in found.values()]

    def entry(self, stage: str, key: str) -> Entry:
        """One folder. NotHere if there is none, or the name cannot be one."""
        path = self._path(stage, key)
        if not path.is_dir():
            raise NotHere(
                f"The store holds no {stage}/{key}. It may have been removed since; the "
                "run that needs it makes it again."
            )
        return self._entry(path)

    def artifact(self, stage: str, key: str) -> Artifact:
        """A finished artifact, its files unchecked. NotHere, Damaged."""
        entry = self.entry(stage, key)
        if entry.state == "damaged":
            raise Damaged(entry.problem)
        if entry.manifest is None:
            raise NotHere(
                f"{stage}/{key} is not finished: a run is filling it, or was cut off "
                "there. The same command goes on from where it stopped."
            )
        return Artifact(stage, key, entry.path, entry.manifest)

    def find(self, name: str) -> Artifact:
        """The finished artifact called "stage/key". NotHere, Damaged."""
        stage, _, key = name.partition("/")
        return self.artifact(stage, key)

    def report(self, key: str) -> Report:
        """The data behind a report page. NotHere, Damaged (also: of another version)."""
        path = self.artifact("report", key).path / ReportFile
        stamp = _stamp(path)
        kept = self._reports.get(path)
        if kept is None or kept[0] != stamp:
            kept = (stamp, _report(path))
            self._reports[path] = kept
        return kept[1]

    def inputs(self, manifest: Manifest) -> dict[str, tuple[Entry, ...]]:
        """By input name, the artifacts whose content digest the recipe was keyed by."""
        by_digest = _by_digest(self.entries())
        return {
            name: tuple(by_digest[digest]) if digest in by_digest else ()
            for name, digest in input_digests(manifest.inputs).items()
        }

    def consumers(self, artifact: Artifact) -> list[Entry]:
        """Finished artifacts that were keyed by this one's content, or refer to it."""
        digest, name = artifact.content_digest, artifact.name
        return [
            entry
            for entry in self.entries()
            if entry.manifest is not None
            and (
                digest in input_digests(entry.manifest.inputs).values()
                or name in entry.manifest.parts
            )
        ]

    def lost_files(self, entry: Entry) -> int:
        """How many of its own files are missing or of another size; reads none of them."""
        files = {} if entry.manifest is None else entry.manifest.files
        folder = f"{entry.path}/"  # a pass has thousands: a Path costs more than a stat
        return sum(_size(folder + name) != record.size for name, record in files.items())

    def progress(self, stage: str, key: str) -> Json | None:
        """What an unfinished artifact last said of its work."""
        return read_progress(self._path(stage, key) / WORK / PROGRESS)

    def _path(self, stage: str, key: str) -> Path:
        try:
            return self.root / checked_stage(stage) / checked_key(key)
        except BadName as error:
            raise NotHere(f"No artifact can be called that: {error}.") from error

    def _entry(self, path: Path) -> Entry:
        stage, key = path.parent.name, path.name
        changed = _changed(path)
        try:
            artifact = self.store.load(stage, key)
        except ArtifactDamaged as error:
            return Entry(stage, key, path, "damaged", changed, problem=str(error))
        if artifact is None:
            return Entry(stage, key, path, "unfinished", changed)
        return Entry(stage, key, path, "finished", changed, artifact.manifest)


def depot_of(request: Request) -> Depot:
    """The app's one depot."""
    depot = request.app.state.depot
    assert isinstance(depot, Depot), "create_app puts it there"
    return depot


InDepot = Annotated[Depot, Depends(depot_of)]


def input_digests(inputs: Mapping[str, object]) -> dict[str, str]:
    """The content digest behind each input's name; nested ones as `measures.stale`."""
    found: dict[str, str] = {}
    pairs = inputs.get("in_order")
    named = dict(pairs) if isinstance(pairs, list) else dict(inputs)
    for name, value in named.items():
        if isinstance(value, str):
            found[name] = value
        elif isinstance(value, dict):
            found |= {f"{name}.{inner}": d for inner, d in input_digests(value).items()}
        elif isinstance(value, list):
            numbered = {str(place): one for place, one in enumerate(value)}
            found |= {f"{name}[{i}]": d for i, d in input_digests(numbered).items()}
    return found


def _by_digest(entries: list[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.manifest is not None:
            found[entry.manifest.content_digest].append(entry)
    return found


def _folders(root: Path) -> list[Path]:
    found = []
    for path in sorted(root.glob("*/*/")):
        try:
            checked_stage(path.parent.name)
            checked_key(path.name)
        except BadName:
            continue
        if path.parent.name not in RESERVED:
            found.append(path)
    return found


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return None


def _changed(path: Path) -> float:
    for one in (path / RECORD, path):
        stamp = _stamp(one)
        if stamp is not None:
            return stamp[0] / 1e9
    return 0.0


def _report(path: Path) -> Report:
    try:
        return Report.model_validate_json(path.read_bytes())
    except OSError as error:
        raise Damaged(f"{path}: the report's data is missing or unreadable.") from error
    except ValidationError as error:
        raise Damaged(
            f"{path}: the report was written by another version of mtp-heal, or its bytes "
            "changed. Run its command again to have it written anew."
        ) from error
