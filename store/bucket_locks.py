"""Locks of a store in a bucket: flock among this machine's processes, a lease among all."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from store.bucket import Bucket
from store.errors import BucketError
from store.holding import Locks
from store.lease_folder import MARK
from store.leases import Lease, LeaseTimes, Watch, hold_lease
from store.locks import FileHold, key_lock


@dataclass(frozen=True)
class BucketBoard:
    """A lease `stage/key` is the objects `locks/stage/key/<number>`."""

    bucket: Bucket

    @property
    def where(self) -> str:
        """The bucket, for errors."""
        return self.bucket.url

    def create(self, name: str, number: int, data: bytes) -> bool:
        """Whether this call made the object: a put on the condition that there is none."""
        return self.bucket.create(_object(name, number), data)

    def write(self, name: str, number: int, data: bytes) -> None:
        """Replace the object."""
        self.bucket.put(_object(name, number), data)

    def read(self, name: str, number: int) -> bytes | None:
        """What it holds; None if it is gone."""
        return self.bucket.get(_object(name, number))

    def numbers(self, name: str) -> list[int]:
        """The numbers there are now."""
        listed = self.bucket.listing(f"locks/{name}")
        return [int(one) for one in listed if one.isdecimal()]

    def remove(self, name: str, number: int) -> None:
        """Delete the object if it is there."""
        self.bucket.remove([_object(name, number)])

    def names(self) -> list[str]:
        """Every lease there is, as "stage/key"."""
        return sorted(
            {one.rpartition("/")[0] for one in self.bucket.listing("locks")} - {""}
        )

    def agreed(self, times: LeaseTimes) -> LeaseTimes:
        """The times everyone keeps to: the first one's.

        BucketError where the server makes an object that is there already: it knows no
        conditions, and two machines would make the same artifact.
        """
        name, data = f"locks/{MARK}", times.model_dump_json().encode()
        self.bucket.create(name, data)
        if self.bucket.create(name, data):
            raise BucketError(
                self.where,
                "the server ignores conditional writes (If-None-Match), by which runs keep "
                "out of each other's way; use one that has them, as AWS does, or a folder",
            )
        return LeaseTimes.model_validate_json(self.bucket.get(name) or data)


@dataclass(frozen=True)
class BucketHold:
    """A lease beside the flock of this machine, under which nobody else fills here."""

    lease: Lease
    file: FileHold
    own_folder: None = None

    @property
    def is_lost(self) -> bool:
        """Whether it was seen that another holds it now."""
        return self.lease.is_lost

    def announce(self, names: Iterable[str]) -> None:
        """Say here what is being read: only this machine's copies are ever freed."""
        self.file.announce(names)

    def confirm(self) -> None:
        """LeaseLost if another machine took it over."""
        self.lease.confirm()


class BucketLocks(Locks):
    """The locks of a bucket's store; `folder` is that of its copies on this machine."""

    def __init__(self, folder: Path, bucket: Bucket, times: LeaseTimes) -> None:
        super().__init__(folder)
        self._bucket_board, self._times = BucketBoard(bucket), times
        self._eyes: Watch | None = None

    @contextmanager
    def held(
        self, stage: str, key: str, on_wait: Callable[[], None] | None = None
    ) -> Iterator[BucketHold]:
        """Hold the lock of an artifact alone; `on_wait` is called if it is taken."""
        if self._eyes is None:
            self._eyes = Watch(self._bucket_board.agreed(self._times))
        name = f"{stage}/{key}"
        with (
            key_lock(self.path(stage, key), on_wait) as file,
            hold_lease(self._bucket_board, name, self._eyes, on_wait) as lease,
        ):
            yield BucketHold(lease, file)


def _object(name: str, number: int) -> str:
    return f"locks/{name}/{number:08d}"
