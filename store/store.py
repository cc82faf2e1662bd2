"""A folder of artifacts, found by stage and key, checked before they are used."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path

from pydantic import ValidationError

from store.artifact import Artifact
from store.digests import FileDigests, sha256_of
from store.errors import ArtifactDamaged
from store.holding import Locks
from store.keys import RESERVED, checked_key, checked_stage, split_name
from store.leases import LeaseTimes
from store.locks import Hold
from store.manifest import MANIFEST, RECORD, FileRecord, Manifest
from store.record import read_reference, record_name

Problems = list[str]
# A file's sha256, given its path, what it is on disk now and what was written.
Hasher = Callable[[str, os.stat_result, FileRecord], str]


class Store:
    """One artifact a folder, `<root>/<stage>/<key>/`.

    Beside the stages lie the store's own `locks/`, `digests/`, `damaged/` and `runs/`.
    Looking things up in a store that `keeps` nothing writes nothing, not even digests.
    With `leases` it is locked for several machines, and stays so for everyone.
    """

    def __init__(
        self, root: Path, *, keeps: bool = True, leases: LeaseTimes | None = None
    ) -> None:
        self.root = root.absolute()
        self.locks = Locks(self.root / "locks", leases)
        self.digests = FileDigests(self.root / "digests", keeps=keeps)
        self._read_whole: set[tuple[str, str]] = set()
        self._manifests: dict[str, Manifest] = {}  # by sha256, so nothing in it goes stale

    def path(self, stage: str, key: str) -> Path:
        """The folder of an artifact, whether it exists or not."""
        return self.root / checked_stage(stage) / checked_key(key)

    def hold(
        self, stage: str, key: str, on_wait: Callable[[], None] | None = None
    ) -> AbstractContextManager[Hold]:
        """Hold an artifact's lock alone; `on_wait` is called once if it is taken."""
        return self.locks.held(stage, key, on_wait)

    def record_path(self, stage: str, key: str) -> Path:
        """The record whose presence makes an artifact finished."""
        return self.root / record_name(stage, key)

    def load(self, stage: str, key: str) -> Artifact | None:
        """The finished artifact, its files unchecked; None if there is no record.

        Raises `ArtifactDamaged` if the record or the manifest it closes is not as written.
        """
        record = self.record_path(stage, key)
        reference = read_reference(record)
        if reference is None:
            return None
        manifest = self._manifest(record.parent / MANIFEST, reference.manifest)
        return Artifact(stage=stage, key=key, path=record.parent, manifest=manifest)

    def parts(self, artifact: Artifact) -> tuple[Artifact, ...]:
        """The artifacts this one refers to, in its order."""
        return tuple(self._part(name) for name in artifact.manifest.parts)

    def check(self, artifact: Artifact) -> Problems:
        """What is wrong with the artifact and its parts, quickly: sizes and file times.

        A file whose time differs (a copied store) is read once and its sha256 remembered.
        """
        return _flat(self.damage(artifact))

    def deep_check(self, artifact: Artifact) -> Problems:
        """What is wrong with the artifact and its parts, after reading every byte."""
        return _flat(self._damage(artifact, self._deep))

    def damage(self, artifact: Artifact) -> dict[str, Problems]:
        """`check`, by the "stage/key" that is to blame: the artifact's or a part's."""
        return self._damage(artifact, self._quick)

    def damage_before_use(self, artifact: Artifact) -> dict[str, Problems]:
        """`damage`, after reading every byte the first time in this process."""
        return self._damage(artifact, self._deep_once)

    def note_written(self, artifact: Artifact) -> None:
        """Count an artifact as read in this process: sealing it just read every byte."""
        self._read_whole.add((artifact.name, artifact.manifest.content))

    def clear_damage(self, stage: str, key: str) -> Problems:
        """Set the artifact aside if its own files are damaged; what was wrong.

        The caller holds its lock, so that nobody loses one that was just made again.
        """
        try:
            artifact = self.load(stage, key)
        except ArtifactDamaged as error:
            problems = [str(error)]
        else:
            problems = self._deep(artifact) if artifact is not None else []
        if problems:
            self.set_aside(stage, key)
        return problems

    def set_aside(self, stage: str, key: str) -> Path | None:
        """Move an artifact to `damaged/`; where to, or None if there is nothing to move."""
        source = self.path(stage, key)
        if not source.exists():
            return None
        folder = self.root / "damaged"
        folder.mkdir(exist_ok=True)
        names = (folder / f"{stage}-{key}-{number}" for number in count(1))
        target = next(path for path in names if not path.exists())
        return source.rename(target)

    def artifacts(self) -> Iterator[Artifact]:
        """Every finished artifact whose manifest can be read, by stage and key."""
        for record in sorted(self.root.glob("*/*/record.json")):
            stage, key = record.parent.parent.name, record.parent.name
            if stage in RESERVED:
                continue
            try:
                artifact = self.load(stage, key)
            except ArtifactDamaged:
                continue
            if artifact is not None:
                yield artifact

    def space(self) -> dict[str, int]:
        """Bytes on disk by folder of the store: each stage, and what was set aside."""
        folders = sorted(path for path in self.root.glob("*") if path.is_dir())
        return {
            folder.name: sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
            for folder in folders
        }

    def _manifest(self, path: Path, digest: str) -> Manifest:
        """The manifest with that sha256; its bytes are read each time, parsed once."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ArtifactDamaged(path, "the manifest is missing or unreadable") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise ArtifactDamaged(path, "the manifest is not the one its record closes")
        if digest not in self._manifests:
            self._manifests[digest] = _parsed(data, path)
        return self._manifests[digest]

    def _part(self, name: str) -> Artifact:
        stage, key = split_name(name)
        part = self.load(stage, key)
        if part is None:
            raise ArtifactDamaged(
                self.path(stage, key), "a part of another artifact is gone"
            )
        return part

    def _damage(
        self, artifact: Artifact, own: Callable[[Artifact], Problems]
    ) -> dict[str, Problems]:
        found: dict[str, Problems] = {}
        problems = own(artifact)
        parts = zip(artifact.manifest.parts, artifact.manifest.part_digests, strict=True)
        for name, digest in dict(parts).items():
            try:
                part = self._part(name)
            except ArtifactDamaged as error:
                found[name] = [str(error)]
                continue
            if part.content_digest != digest:
                problems.append(
                    f"{artifact.path}: its part {name} now holds something else"
                )
            found.update(self._damage(part, own))
        return found | ({artifact.name: problems} if problems else {})

    def is_shared(self, artifact: Artifact) -> bool:
        """Whether everyone who shares this store can see the artifact."""
        return True

    def share(self, artifact: Artifact, hold: Hold) -> None:
        """Have everyone see it, as the holder of its lock, unless they do."""

    def bring(self, artifact: Artifact) -> None:
        """Have the files here that are no arrays; arrays are opened wherever they lie."""

    def _quick(self, artifact: Artifact) -> Problems:
        return [*self._file_problems(artifact, is_deep=False).values()]

    def _deep(self, artifact: Artifact) -> Problems:
        return [*self._file_problems(artifact, is_deep=True).values()]

    def _file_problems(self, artifact: Artifact, *, is_deep: bool) -> dict[str, str]:
        """What is wrong with files in its folder, by name."""

        def remembered(path: str, now: os.stat_result, record: FileRecord) -> str:
            unchanged = now.st_mtime_ns == record.mtime_ns
            return record.sha256 if unchanged else self.digests.sha256(Path(path))

        def read(path: str, now: os.stat_result, record: FileRecord) -> str:
            return sha256_of(Path(path))

        return _problems(artifact, read if is_deep else remembered)

    def _deep_once(self, artifact: Artifact) -> Problems:
        seen = (artifact.name, artifact.manifest.content)
        if seen in self._read_whole:
            return self._quick(artifact)
        problems = self._deep(artifact)
        if not problems:
            self._read_whole.add(seen)
        return problems


def _parsed(data: bytes, path: Path) -> Manifest:
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        raise ArtifactDamaged(
            path, "the manifest was written by another version"
        ) from error


def _problems(artifact: Artifact, hasher: Hasher) -> dict[str, str]:
    # Names as text: a trunk pass has thousands of files, and a Path costs more than a stat.
    folder, files = f"{artifact.path}/", artifact.manifest.files
    if not files and not artifact.path.exists():
        gone = f"{artifact.path}: is gone"
        return {RECORD: gone}  # one of parts alone has no file to miss
    found = {name: _file_problem(folder + name, files[name], hasher) for name in files}
    return {name: problem for name, problem in found.items() if problem is not None}


def _file_problem(path: str, record: FileRecord, hasher: Hasher) -> str | None:
    try:
        now = os.stat(path)  # noqa: PTH116
        if now.st_size != record.size:
            return f"{path}: holds {now.st_size:,} bytes, {record.size:,} were written"
        if hasher(path, now, record) != record.sha256:
            return f"{path}: its bytes changed since it was written"
    except FileNotFoundError:
        return f"{path}: is missing"
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"
    return None


def _flat(damage: dict[str, Problems]) -> Problems:
    return [problem for problems in damage.values() for problem in problems]
