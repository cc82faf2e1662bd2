"""From a folder that a stage filled to a finished artifact: all but the record."""

import hashlib
import json
import math
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from store.artifact import Artifact
from store.atomic import flush
from store.digests import settle, sha256_of
from store.errors import ArtifactError
from store.keys import checked_relative, plain_json
from store.manifest import (
    MANIFEST,
    RECORD,
    WORK,
    ArrayInfo,
    FileRecord,
    Json,
    Manifest,
    Origin,
    Recipe,
    content_of,
    key_of,
)
from store.record import Reference
from store.runs import PROGRESS

RESUMED = "resumed"  # flag in work/
SEALED_AT_ONCE = 4


@dataclass(frozen=True)
class StageResult:
    """What a stage hands back besides its files.

    `numbers` are part of the content that later stages are keyed by; `notes` (rates,
    timings) are only shown. `parts` are artifacts that this one refers to instead of
    copying them.
    """

    numbers: Mapping[str, object] = field(default_factory=dict)
    parts: Sequence[Artifact] = ()
    notes: Mapping[str, object] = field(default_factory=dict)


def mark_resumed(out: Path) -> None:
    """Say, from inside a stage, that it went on from a checkpoint in `out/work`."""
    (out / WORK).mkdir(exist_ok=True)
    (out / WORK / RESUMED).touch()


def was_resumed(out: Path) -> bool:
    """Whether `mark_resumed` was called since the folder was prepared."""
    return (out / WORK / RESUMED).exists()


def prepare(out: Path) -> bool:
    """Make the folder, empty but for `work/`; whether a broken-off run had left any."""
    out.mkdir(parents=True, exist_ok=True)
    leftovers = list(out.iterdir())
    for path in leftovers:
        if path.name == WORK and path.is_dir() and not path.is_symlink():
            (path / RESUMED).unlink(missing_ok=True)
        elif path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return bool(leftovers)


def finish(out: Path, recipe: Recipe, result: StageResult, origin: Origin) -> Reference:
    """Hash and seal every file, write the manifest; what the record must say.

    `work/` stays until the record is there: a run that is cut between the two can resume.

    Raises `NotJson` for numbers JSON cannot hold and `ArtifactError` for links, for files
    under the store's own names, and for arrays with unwritten chunks.
    """
    numbers = _object(result.numbers, "numbers")
    notes = _object(result.notes, "notes")
    files = _sealed(out)
    manifest = Manifest(
        **recipe.model_dump(),
        **origin.model_dump(),
        key=key_of(recipe),
        content=content_of(files),
        files=files,
        arrays=_arrays(out, files),
        parts=tuple(part.name for part in result.parts),
        part_digests=tuple(part.content_digest for part in result.parts),
        numbers=numbers,
        notes=notes,
    )
    data = json.dumps(manifest.model_dump(mode="json"), indent=1).encode()
    # Nobody reads it before the record is there, whose writer flushes the folder.
    (out / MANIFEST).write_bytes(data)
    flush(out / MANIFEST)
    make_read_only(out / MANIFEST)
    settle(max((record.mtime_ns for record in files.values()), default=0))
    return Reference(
        stage=recipe.stage, key=manifest.key, manifest=hashlib.sha256(data).hexdigest()
    )


def drop_work(out: Path) -> None:
    """Delete what only a broken-off run would need."""
    shutil.rmtree(out / WORK, ignore_errors=True)


def drop_broken(out: Path, *, is_refused: bool = False) -> None:
    """Delete half an artifact but for `work/`; nothing is left where nothing can resume.

    It is of no use and may fill the disk. How far one was that was refused, nobody is told.
    """
    prepare(out)
    if is_refused:
        (out / WORK / PROGRESS).unlink(missing_ok=True)
    for folder in (out / WORK, out):
        with suppress(OSError):  # not empty: there is something to resume; or not there
            folder.rmdir()


def make_read_only(path: Path) -> None:
    """Take a file's write permissions; folders keep theirs, so `rm -rf` still works."""
    path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))


def _object(values: Mapping[str, object], where: str) -> Json:
    plain = plain_json(values, where)
    assert isinstance(plain, dict), "a mapping becomes a dict"
    return plain


def _own_files(out: Path) -> Iterator[Path]:
    """Every file the stage wrote; its folders are flushed on the way."""
    for path in sorted(out.rglob("*")):
        relative = path.relative_to(out)
        if relative.parts[0] == WORK:
            continue
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ArtifactError(
                f"{path}: an artifact holds plain files only, this is a link or a device; "
                "write the content itself, or refer to an artifact through `parts`"
            )
        if relative.as_posix() in {MANIFEST, RECORD}:
            raise ArtifactError(f"{path}: this name is the store's own; choose another")
        checked_relative(relative.as_posix())
        if path.is_dir():
            flush(path)
        else:
            yield path


def _sealed(out: Path) -> dict[str, FileRecord]:
    """Every file on disk, read-only and hashed, by its name below `out`.

    Several at once: a disk takes nine times as long to make them last one after another.
    """
    paths = list(_own_files(out))
    with ThreadPoolExecutor(SEALED_AT_ONCE) as pool:
        records = list(pool.map(_seal, paths))
    names = [path.relative_to(out).as_posix() for path in paths]
    return dict(zip(names, records, strict=True))


def _seal(path: Path) -> FileRecord:
    flush(path)
    make_read_only(path)
    status = path.stat()
    return FileRecord(
        size=status.st_size, mtime_ns=status.st_mtime_ns, sha256=sha256_of(path)
    )


def _arrays(out: Path, files: Mapping[str, FileRecord]) -> dict[str, ArrayInfo]:
    """Outline of every Zarr array among the files, read from their JSON without zarr."""
    found = {}
    for name in files:
        folder, _, last = name.rpartition("/")
        if last == "zarr.json" and folder:
            meta = json.loads((out / name).read_bytes())
            if meta.get("node_type") == "array":
                found[folder] = _array_info(out / folder, meta, files, folder)
    return found


def _array_info(
    path: Path, meta: Json, files: Mapping[str, FileRecord], folder: str
) -> ArrayInfo:
    info = ArrayInfo.model_validate(
        {
            "shape": meta["shape"],
            "dtype": meta["data_type"],
            "chunks": meta["chunk_grid"]["configuration"]["chunk_shape"],
        }
    )
    # A missing chunk reads as fill value, silently: refuse to finish without it.
    need = math.prod(-(-n // c) for n, c in zip(info.shape, info.chunks, strict=True))
    have = sum(name.startswith(f"{folder}/c/") or name == f"{folder}/c" for name in files)
    if have != need:
        raise ArtifactError(
            f"{path}: {have} of {need} chunks were written; write every chunk"
        )
    return info
