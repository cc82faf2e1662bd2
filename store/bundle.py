"""A heal as one file: a plain tar of artifacts, their lineage, and the run that made them.

    heal-export.json                what follows: sizes and sha256 of every member
    runs/<id>/run.json              the run
    <stage>/<key>/…                 every file of every artifact, by name
    <stage>/<key>/record.json       the result records, last

Equal artifacts give equal bytes: names in order, no times, no owners. Never compressed: a
reader knows from the first member how much will come.
"""

import hashlib
import io
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from store.atomic import whole_file
from store.collect import models_in
from store.digests import Progress, sha256_of
from store.errors import ArtifactError, UnknownName
from store.manifest import MANIFEST, RECORD, PartName, RelativePath, Stored
from store.pins import runs_called
from store.reach import Lineage, stages_of
from store.runs import RUN, RUNS, runs
from store.store import Store
from store.upkeep import Item, chosen, items, verify

INDEX = "heal-export.json"
BLOCK = 512
NAME_BYTES = 100  # as many as a tar header holds without extensions


class Member(Stored):
    """One file of an export."""

    name: RelativePath
    size: int
    sha256: str


class Index(Stored):
    """The whole `heal-export.json`. `root`: the run's id, or what was asked for."""

    format: Literal[1]
    root: str
    artifacts: tuple[PartName, ...]
    members: tuple[Member, ...]


def wanted(store: Store, name: str) -> tuple[list[str], list[Item]]:
    """The runs and finished artifacts that a name means, with all they rest on.

    `name`: `last`, a run's id, an artifact, or the beginning of either. UnknownName if
    nothing is called so, ArtifactError if what it means is not finished.
    """
    listed = items(store)
    lineage = Lineage(listed, models_in(store, listed))
    told = runs(store.root)
    book = {run.record.id: run for run in told}
    named = runs_called(told, name)
    if len(named) > 1:
        raise UnknownName(
            f"{name!r} begins the ids of {len(named)} finished runs; heal status lists them"
        )
    if not named:
        (one,) = chosen(listed, name)
        named = [run for run in book if book[run].record.report == one.name][:1]
        roots = {one.name}
    else:
        roots = stages_of(book[named[0]])
    for run in named:
        if book[run].record.report is None:
            raise UnknownName(f"run {run} has no report; export one that is finished")
        roots |= stages_of(book[run])
    gone = sorted(roots - lineage.items.keys())
    if gone:
        raise ArtifactError(
            f"{name}: {gone[0]} is no longer in the store; run the same command again, "
            "then export"
        )
    reached = lineage.behind(roots)
    return named, [item for item in listed if item.name in reached]


def export(
    store: Store, name: str, out: Path, progress: Progress = lambda *_: None
) -> Index:
    """Writes the heal that a name means to `out`, whole or not at all.

    Every byte is read and checked first. ArtifactError for what is damaged or unfinished.
    """
    named, artifacts = wanted(store, name)
    for item in artifacts:
        if item.state != "finished":
            raise ArtifactError(f"{item.name} is {item.state}; run again, then export")
    for problems in verify(store, artifacts, is_deep=True).values():
        raise ArtifactError(f"{problems[0]}; run again, then export")
    members = tuple(_members(store, named, artifacts))
    index = Index(
        format=1,
        root=named[0] if named else name,
        artifacts=tuple(item.name for item in artifacts),
        members=members,
    )
    total, done = sum(one.size for one in members), 0
    with whole_file(out) as beside, beside.open("wb") as file:
        data = index.model_dump_json(indent=1).encode()
        _append(file, INDEX, io.BytesIO(data), len(data), hashlib.sha256(data).hexdigest())
        for one in members:
            with (store.root / one.name).open("rb") as source:
                _append(file, one.name, source, one.size, one.sha256)
            done += one.size
            progress(done, total)
        file.write(bytes(2 * BLOCK))
    return index


def _members(
    store: Store, named: Sequence[str], artifacts: Sequence[Item]
) -> Iterator[Member]:
    for run in named:
        yield _member(store, f"{RUNS}/{run}/{RUN}")
    for item in artifacts:
        assert item.manifest is not None, "only finished artifacts are exported"
        for name, record in sorted(item.manifest.files.items()):
            full = f"{item.name}/{name}"
            yield Member(name=full, size=record.size, sha256=record.sha256)
        yield _member(store, f"{item.name}/{MANIFEST}")
    for item in artifacts:
        yield _member(store, f"{item.name}/{RECORD}")


def _member(store: Store, name: str) -> Member:
    path = store.root / name
    return Member(name=name, size=path.stat().st_size, sha256=sha256_of(path))


def _append(
    file: io.BufferedIOBase, name: str, source: io.BufferedIOBase, size: int, sha256: str
) -> None:
    """One member: header, bytes, zeros up to a whole block."""
    if len(name.encode()) > NAME_BYTES:
        raise ArtifactError(
            f"{name}: longer than the {NAME_BYTES} bytes a tar's header has"
        )
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o444
    file.write(info.tobuf(tarfile.GNU_FORMAT))
    digest = hashlib.sha256()
    while block := source.read(1 << 22):
        digest.update(block)
        file.write(block)
    if digest.hexdigest() != sha256:
        raise ArtifactError(f"{name}: changed while it was exported; export again")
    file.write(bytes(-size % BLOCK))
