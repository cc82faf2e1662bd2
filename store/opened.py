"""Opening a store by what a user calls it: a folder, or `s3://bucket/prefix`."""

from pathlib import Path

from pydantic import ValidationError

from store.atomic import write_whole
from store.bucket import Bucket
from store.errors import NotAStore, storage_errors
from store.lease_folder import mark_times
from store.leases import LeaseTimes
from store.manifest import Stored
from store.store import Store

MARK = "bucket.json"


class _BucketMark(Stored):
    url: str


def is_url(text: str) -> bool:
    """Whether a store is named by a bucket's URL, even one that went through a Path."""
    return text.startswith("s3:/")


def bucket_folder(url: str, scratch: Path) -> Path:
    """The folder below `scratch` that stands for a bucket's store on this machine, marked.

    NotAStore for what is no bucket's URL.
    """
    bucket = Bucket.of(url)
    root = scratch.absolute() / bucket.name / bucket.prefix
    mark = root / MARK
    if not mark.exists():
        with storage_errors(scratch.absolute(), f"the folder of {bucket.url}"):
            root.mkdir(parents=True, exist_ok=True)
            write_whole(mark, _BucketMark(url=bucket.url).model_dump_json().encode())
    return root


def open_store(
    root: Path, *, keeps: bool = True, leases: LeaseTimes | None = None
) -> Store:
    """The store at a folder: its own, or the bucket's that the folder stands for."""
    bucket = bucket_of(root)
    if bucket is None:
        if leases is not None and keeps:  # before workers open it, who were told nothing
            with storage_errors(root.absolute(), "a mark for several machines"):
                mark_times(root.absolute() / "locks", leases)
        return Store(root, keeps=keeps, leases=leases)
    from store.bucket_store import BucketStore

    return BucketStore(bucket, root, keeps=keeps, times=leases)


def bucket_of(root: Path) -> Bucket | None:
    """The bucket that a folder stands for; None for a plain store."""
    try:
        data = (root / MARK).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return Bucket.of(_BucketMark.model_validate_json(data).url)
    except ValidationError as error:
        raise NotAStore(f"{root / MARK}: cannot be read; delete {root}") from error


def refuse_bucket(root: Path, command: str) -> None:
    """NotAStore for a bucket's folder, from a command that is for plain stores."""
    bucket = bucket_of(root)
    if bucket is not None:
        raise NotAStore(
            f"{command} is for stores on a disk, {bucket.url} is a bucket; list and delete "
            f"there with the tools of its server. The copies in {root} may be deleted "
            "whenever no run is at work"
        )
