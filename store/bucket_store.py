"""A store in a bucket: stages work in a folder here, what they finish is sent there.

The bucket is what counts. Here lie copies: of what this machine made, and of what it found
the files that are no arrays. Other arrays are read from the bucket, chunk by chunk.

    <stage>/<key>/record.json        last, made once: the folder, each object, the record
    <stage>/<key>/<token>/…          the files of the holder that made it, nobody else's
"""

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

from pydantic import ValidationError

from store.artifact import Artifact
from store.atomic import write_whole
from store.bucket import Bucket, Stat
from store.bucket_locks import BucketHold, BucketLocks
from store.completion import make_read_only
from store.digests import sha256_of
from store.elsewhere import ELSEWHERE, Elsewhere, point_elsewhere
from store.errors import ArtifactDamaged, LeaseLost
from store.keys import checked_relative
from store.leases import LeaseTimes
from store.locks import Hold
from store.manifest import MANIFEST, RECORD, RelativePath, Stored
from store.record import record_name
from store.store import Problems, Store

SENT_AT_ONCE = 8


class ObjectRecord(Stored):
    """One object as the server had it when it was sent."""

    size: int
    e_tag: str


class BucketRecord(Stored):
    """What makes an artifact of a bucket finished: its objects, and its record's text."""

    folder: str
    objects: dict[RelativePath, ObjectRecord]
    record: str


class BucketStore(Store):
    """The store of a bucket, with the folder `root` for this machine's copies of it."""

    def __init__(
        self,
        bucket: Bucket,
        root: Path,
        *,
        keeps: bool = True,
        times: LeaseTimes | None = None,
    ) -> None:
        super().__init__(root, keeps=keeps)
        self.bucket = bucket
        self.locks = BucketLocks(self.root / "locks", bucket, times or LeaseTimes())
        self._sent: dict[str, BucketRecord] = {}  # by "stage/key", as last seen
        self._unsent: set[str] = set()  # whole here, and not in the bucket
        self._same: set[tuple[str, str]] = set()  # objects of another e_tag, but the bytes

    def load(self, stage: str, key: str) -> Artifact | None:
        """The finished artifact, here or in the bucket, whose record wins."""
        sent = self._seen(stage, key)
        try:
            here = super().load(stage, key)
        except ArtifactDamaged:
            if sent is None:
                raise
            here = None
        record = self.record_path(stage, key)
        if sent is None or (here is not None and record.read_text() == sent.record):
            return here
        self._copy_words(stage, key, sent)
        return super().load(stage, key)

    def is_shared(self, artifact: Artifact) -> bool:
        """Whether the bucket had all of it when it was last checked."""
        return artifact.name not in self._unsent

    def share(self, artifact: Artifact, hold: Hold) -> None:
        """Send an artifact that is whole here: its files, then the one object that counts.

        LeaseLost if another machine took the lock over; then nothing counts as sent.
        """
        if self.is_shared(artifact):
            return
        assert isinstance(hold, BucketHold), "a store's holds are its own locks'"
        folder = f"{artifact.name}/{hold.lease.own_folder}"
        names = [*artifact.manifest.files, MANIFEST]
        with ThreadPoolExecutor(SENT_AT_ONCE) as pool:
            stats = list(pool.map(self._send, repeat(artifact.path), repeat(folder), names))
        sent = BucketRecord(
            folder=folder,
            objects={
                name: ObjectRecord(size=stat.size, e_tag=stat.e_tag)
                for name, stat in zip(names, stats, strict=True)
            },
            record=(artifact.path / RECORD).read_text(),
        )
        self._close(artifact, sent, hold)

    def set_aside(self, stage: str, key: str) -> Path | None:
        """Move the copy here to `damaged/` and take the bucket's record away."""
        self.bucket.remove([record_name(stage, key)])
        self._sent.pop(f"{stage}/{key}", None)
        return super().set_aside(stage, key)

    def bring(self, artifact: Artifact) -> None:
        """Bring the files here that are no arrays; ArtifactDamaged if one is gone there."""
        for problem in self._brought(artifact):
            raise ArtifactDamaged(artifact.path, problem)

    def _brought(self, artifact: Artifact) -> Problems:
        names = [name for name in artifact.manifest.files if not _in_array(artifact, name)]
        missing = [name for name in names if not (artifact.path / name).exists()]
        with ThreadPoolExecutor(SENT_AT_ONCE) as pool:
            found = pool.map(self._fetched, repeat(artifact), missing)
            return [problem for problem in found if problem is not None]

    def _quick(self, artifact: Artifact) -> Problems:
        return self._reconciled(artifact, self._file_problems(artifact, is_deep=False))

    def _deep(self, artifact: Artifact) -> Problems:
        return self._reconciled(artifact, self._file_problems(artifact, is_deep=True))

    def _deep_once(self, artifact: Artifact) -> Problems:
        return super()._deep_once(artifact) or self._brought(artifact)

    def _reconciled(self, artifact: Artifact, here: dict[str, str]) -> Problems:
        """What is wrong both here and there; of what is wrong here alone the copy goes."""
        there = self._problems_there(artifact)
        if there and not here:
            self._unsent.add(artifact.name)
            return []
        self._unsent.discard(artifact.name)
        if there:
            return [*there.values()]
        for name in here:
            (artifact.path / name).unlink(missing_ok=True)
        if here and not (artifact.path / ELSEWHERE).exists():
            self._point(artifact.path, self._sent[artifact.name])
        return []

    def _problems_there(self, artifact: Artifact) -> dict[str, str]:
        """What is wrong with its objects, by name: one listing, and none of their bytes."""
        sent = self._sent.get(artifact.name)
        if sent is None:
            return {RECORD: f"{self.bucket.url}/{artifact.name}: is not in the bucket"}
        listed = self.bucket.listing(sent.folder)
        found: dict[str, str] = {}
        digests = {name: one.sha256 for name, one in artifact.manifest.files.items()}
        digests[MANIFEST] = sha256_of(artifact.path / MANIFEST)
        for name, digest in digests.items():
            problem = self._object_problem(sent, name, listed.get(name), digest)
            if problem is not None:
                found[name] = f"{self.bucket.url}/{sent.folder}/{name}: {problem}"
        return found

    def _object_problem(
        self, sent: BucketRecord, name: str, now: Stat | None, sha256: str
    ) -> str | None:
        written = sent.objects.get(name)
        if now is None or written is None:
            return "is missing"
        if now.size != written.size:
            return f"holds {now.size:,} bytes, {written.size:,} were written"
        place = f"{sent.folder}/{name}"
        if now.e_tag == written.e_tag or (place, now.e_tag) in self._same:
            return None
        # A bucket that was copied has other tags: read once, as a file of another time is.
        if self.bucket.sha256(place) != sha256:
            return "its bytes changed since it was written"
        self._same.add((place, now.e_tag))
        return None

    def _seen(self, stage: str, key: str) -> BucketRecord | None:
        """What the bucket's record says now, kept for the checks that follow."""
        name = record_name(stage, key)
        data = self.bucket.get(name)
        self._sent.pop(f"{stage}/{key}", None)
        if data is None:
            return None
        try:
            sent = BucketRecord.model_validate_json(data)
        except ValidationError:
            where = Path(f"{self.bucket.url}/{name}")
            raise ArtifactDamaged(where, "the record cannot be read") from None
        self._sent[f"{stage}/{key}"] = sent
        return sent

    def _copy_words(self, stage: str, key: str, sent: BucketRecord) -> None:
        """Manifest, the way to the arrays and, last, the record into the folder here."""
        folder = self.path(stage, key)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RECORD).unlink(missing_ok=True)
        manifest = self.bucket.get(f"{sent.folder}/{MANIFEST}")
        if manifest is None:
            where = Path(f"{self.bucket.url}/{sent.folder}/{MANIFEST}")
            raise ArtifactDamaged(where, "is missing")
        write_whole(folder / MANIFEST, manifest)
        self._point(folder, sent)
        write_whole(folder / RECORD, sent.record.encode())

    def _point(self, folder: Path, sent: BucketRecord) -> None:
        point_elsewhere(folder, Elsewhere(url=self.bucket.url, folder=sent.folder))

    def _send(self, source: Path, folder: str, name: str) -> Stat:
        return self.bucket.put(f"{folder}/{name}", source / checked_relative(name))

    def _close(self, artifact: Artifact, sent: BucketRecord, hold: BucketHold) -> None:
        """The record, by whoever still holds the lock; then what older fills left goes."""
        name, data = record_name(artifact.stage, artifact.key), sent.model_dump_json()
        hold.confirm()
        if not self.bucket.create(name, data.encode()):
            hold.confirm()  # ours to replace: its objects were found wanting
            self.bucket.remove([name])
            if not self.bucket.create(name, data.encode()):
                raise LeaseLost(artifact.name, self.bucket.url)
        self._sent[artifact.name] = sent
        self._unsent.discard(artifact.name)
        own = f"{sent.folder.removeprefix(f'{artifact.name}/')}/"
        listed = self.bucket.listing(artifact.name)
        self.bucket.remove(
            f"{artifact.name}/{one}"
            for one in listed
            if one != RECORD and not one.startswith(own)
        )

    def _fetched(self, artifact: Artifact, name: str) -> str | None:
        sent, written = self._sent[artifact.name], artifact.manifest.files[name]
        path = artifact.path / name
        digest = self.bucket.fetch(f"{sent.folder}/{name}", path)
        if digest != written.sha256:
            path.unlink(missing_ok=True)
            return f"{self.bucket.url}/{sent.folder}/{name}: is missing or changed"
        os.utime(path, ns=(written.mtime_ns, written.mtime_ns))
        make_read_only(path)
        return None


def _in_array(artifact: Artifact, name: str) -> bool:
    return any(name.startswith(f"{folder}/") for folder in artifact.manifest.arrays)
