"""Taking an export in: nothing of it is visible before all of it is checked.

The file may come from anywhere. Only plain files are read, under the names and sizes that
its first member lists, into a folder of their own; no link, no path out, no code.
"""

import hashlib
import os
import secrets
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from store.atomic import flush
from store.bundle import BLOCK, INDEX, Index, Member
from store.completion import make_read_only
from store.digests import Progress
from store.errors import ArtifactDamaged, ArtifactError, BadBundle
from store.keys import split_name
from store.manifest import MANIFEST, RECORD, Manifest, Recipe, content_of, key_of
from store.runs import RUN, RUNS, RunRecord, runs
from store.space import refuse_little_room
from store.store import Store

INDEX_BYTES = 64 << 20  # a hundred thousand files take a fifth of that
INCOMING = "incoming"


@dataclass(frozen=True)
class Taken:
    """What came of an import, as "stage/key", and the run that came with it."""

    new: tuple[str, ...]
    known: tuple[str, ...]
    run: str | None


def take_in(store: Store, bundle: Path, progress: Progress = lambda *_: None) -> Taken:
    """The heal in a file that `export` wrote, found by later runs as if made here.

    BadBundle, and nothing changed, if a single byte is not as the file itself says.
    """
    folder = store.root / INCOMING / secrets.token_hex(8)
    try:
        with bundle.open("rb") as file:
            index = _read_index(file, bundle)
            total = sum(one.size for one in index.members)
            refuse_little_room(store.root, total, f"importing {bundle.name}")
            folder.mkdir(parents=True)
            _unpack(file, index, folder, bundle, progress)
        inside = Store(folder)
        for name in index.artifacts:
            _check(inside, name, index, bundle)
        run = _run_in(index, folder, bundle)
        return _show(store, inside, index, run)
    except OSError as error:
        if error.filename != str(bundle):
            raise
        raise BadBundle(
            f"{bundle}: {error.strerror}; give a file heal store export wrote"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read_index(file: BinaryIO, bundle: Path) -> Index:
    name, size = _header(file, bundle)
    if name != INDEX or size > INDEX_BYTES:
        raise _bad(bundle, f"its first member is not a {INDEX}")
    try:
        index = Index.model_validate_json(_exactly(file, size, bundle))
    except ValidationError as error:
        raise _bad(bundle, f"its {INDEX} cannot be read") from error
    _exactly(file, -size % BLOCK, bundle)
    names = [one.name for one in index.members]
    if len(set(names)) != len(names) or any(one.size < 0 for one in index.members):
        raise _bad(bundle, "it lists a file twice, or one of a negative size")
    for name in names:
        _refuse_stranger(name, index, bundle)
    return index


def _refuse_stranger(name: str, index: Index, bundle: Path) -> None:
    """Every file is a run's record or one of a listed artifact's."""
    parts = name.split("/")
    is_run = len(parts) == 3 and parts[0] == RUNS and parts[2] == RUN
    is_plain = all(part not in ("", ".", "..") for part in parts)
    if not is_plain or not (is_run or "/".join(parts[:2]) in index.artifacts):
        raise _bad(bundle, f"it lists {name!r}, which is no artifact's file")


def _unpack(
    file: BinaryIO, index: Index, folder: Path, bundle: Path, progress: Progress
) -> None:
    total, done = sum(one.size for one in index.members), 0
    for one in index.members:
        name, size = _header(file, bundle)
        if (name, size) != (one.name, one.size):
            raise _bad(bundle, f"{name!r} lies where {one.name!r} should")
        target = folder / one.name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as out:
                _copy(file, out, one, bundle)
        except (FileExistsError, NotADirectoryError) as error:
            raise _bad(bundle, f"{one.name!r} is a file and a folder") from error
        flush(target)
        done += one.size
        progress(done, total)
    if file.read(2 * BLOCK).strip(b"\0") or file.read(1):
        raise _bad(bundle, "something follows its last member")


def _copy(file: BinaryIO, out: BinaryIO, one: Member, bundle: Path) -> None:
    digest, left = hashlib.sha256(), one.size
    while left:
        block = _exactly(file, min(left, 1 << 22), bundle)
        digest.update(block)
        out.write(block)
        left -= len(block)
    if digest.hexdigest() != one.sha256:
        raise _bad(bundle, f"{one.name!r} does not hold what was exported")
    _exactly(file, -one.size % BLOCK, bundle)


def _header(file: BinaryIO, bundle: Path) -> tuple[str, int]:
    """Name and size of the next member, a plain file: no extension, no link."""
    try:
        block = _exactly(file, BLOCK, bundle)
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise _bad(bundle, "a header is no tar's") from error
    if info.type != tarfile.REGTYPE or info.size < 0:
        raise _bad(bundle, f"{info.name!r} is no plain file")
    return info.name, info.size


def _exactly(file: BinaryIO, size: int, bundle: Path) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise _bad(bundle, "it was cut short")
    return data


def _check(inside: Store, name: str, index: Index, bundle: Path) -> None:
    """Record, manifest, key, files: as a finished artifact has them, no more."""
    stage, key = split_name(name)
    try:
        artifact = inside.load(stage, key)
    except ArtifactDamaged as error:
        raise _bad(bundle, f"{name}: {error.problem}") from error
    if artifact is None:
        raise _bad(bundle, f"{name} has no record")
    manifest = artifact.manifest
    recipe = Recipe(**{k: getattr(manifest, k) for k in Recipe.model_fields})
    if (manifest.stage, manifest.key, key_of(recipe)) != (stage, key, key):
        raise _bad(bundle, f"{name}: its key is not that of its recipe")
    listed = {one.name: one.sha256 for one in index.members}
    files = {f"{name}/{k}": record.sha256 for k, record in manifest.files.items()}
    own = {k: v for k, v in listed.items() if k.startswith(f"{name}/")}
    for closing in (MANIFEST, RECORD):
        own.pop(f"{name}/{closing}", None)
    if files != own or content_of(manifest.files) != manifest.content:
        raise _bad(bundle, f"{name}: its files are not those of its manifest")
    for part in manifest.parts:
        if part not in index.artifacts:
            raise _bad(bundle, f"{name}: its part {part} is not in it")
    _set_times(artifact.path, manifest)


def _set_times(folder: Path, manifest: Manifest) -> None:
    """As they were written, so that a hit needs to read nothing; read-only again."""
    for name, record in manifest.files.items():
        os.utime(folder / name, ns=(record.mtime_ns, record.mtime_ns))
        make_read_only(folder / name)
    make_read_only(folder / MANIFEST)


def _run_in(index: Index, folder: Path, bundle: Path) -> RunRecord | None:
    named = [one.name for one in index.members if one.name.startswith(f"{RUNS}/")]
    if not named:
        return None
    try:
        record = RunRecord.model_validate_json((folder / named[0]).read_bytes())
    except ValidationError as error:
        raise _bad(bundle, "its run cannot be read") from error
    is_own = named == [f"{RUNS}/{record.id}/{RUN}"]
    if not is_own or record.state == "running":
        raise _bad(bundle, "its run is another, or was not finished")
    return record


def _show(store: Store, inside: Store, index: Index, run: RunRecord | None) -> Taken:
    """Moves each checked artifact to its place, its record last; then the run."""
    new: list[str] = []
    known: list[str] = []
    loaded = [inside.load(*split_name(name)) for name in index.artifacts]
    parts = {part for one in loaded if one is not None for part in one.manifest.parts}
    for name in sorted(index.artifacts, key=lambda one: one not in parts):
        (new if _placed(store, inside, name) else known).append(name)
    if run is not None and run.id not in {one.record.id for one in runs(store.root)}:
        (store.root / RUNS).mkdir(exist_ok=True)
        (inside.root / RUNS / run.id).rename(store.root / RUNS / run.id)
    return Taken(tuple(new), tuple(known), None if run is None else run.id)


def _placed(store: Store, inside: Store, name: str) -> bool:
    """Whether the artifact was missing here and now is not."""
    stage, key = split_name(name)
    source, target = inside.path(stage, key), store.path(stage, key)
    with store.hold(stage, key):
        store.clear_damage(stage, key)
        if store.load(stage, key) is not None:
            return False
        if target.exists():
            shutil.rmtree(target)  # what a run left that broke off
        record = source / RECORD
        kept = record.rename(source.with_name(f"{key}.{RECORD}"))
        target.parent.mkdir(exist_ok=True)
        source.rename(target)
        make_read_only(kept)
        kept.rename(target / RECORD)
        flush(target)
    return True


def _bad(bundle: Path, problem: str) -> ArtifactError:
    return BadBundle(f"{bundle}: {problem}; nothing was imported, export it again")
