"""A bucket of an S3 server: objects below a prefix, by the names of a store.

Credentials are the library's affair (the usual AWS variables) and are never seen here; what
a server answers is told by its error code alone, since its text may repeat them.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.atomic import whole_file
from store.errors import BucketError, NotAStore

if TYPE_CHECKING:
    from obstore.store import S3Store
    from zarr.storage import ObjectStore

_URL = re.compile(r"s3:/+([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/+(.*?))?/*")
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_CODE = re.compile(r"<Code>(\w+)</Code>")
PART_BYTES = 16 << 20  # above it an object is sent in parts, several at once
RETRY_S, RETRIES = 30.0, 6
MISSING = {"NoSuchBucket"}
DENIED = {
    "AccessDenied",
    "AllAccessDisabled",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
}


@dataclass(frozen=True)
class Stat:
    """An object as a listing tells it: bytes, and the server's word for what it holds."""

    size: int
    e_tag: str


@dataclass(frozen=True)
class Bucket:
    """The objects of `s3://name/prefix`; names are relative to the prefix."""

    name: str
    prefix: str

    @classmethod
    def of(cls, url: str) -> "Bucket":
        """The bucket of `s3://name[/prefix]`; NotAStore for anything else."""
        match = _URL.fullmatch(url)
        prefix = "" if match is None else (match[2] or "")
        parts = prefix.split("/") if prefix else []
        if match is None or not all(map(_SEGMENT.fullmatch, parts)):
            raise NotAStore(
                f"store {url}: is no bucket; write s3://bucket or s3://bucket/prefix, with "
                "letters, digits, '.', '_' and '-'"
            )
        return cls(match[1], prefix)

    @property
    def url(self) -> str:
        """`s3://name/prefix`."""
        return f"s3://{self.name}/{self.prefix}".rstrip("/")

    def get(self, name: str) -> bytes | None:
        """An object's bytes; None if there is no such object."""
        with self.errors(), _none_missing() as found:
            found.append(bytes(self._store.get(name).bytes()))
        return found[0] if found else None

    def put(self, name: str, data: bytes | Path) -> Stat:
        """Write an object whole, a large file in parts; what the server made of it."""
        size = data.stat().st_size if isinstance(data, Path) else len(data)
        with self.errors():
            result = self._store.put(
                name, data, chunk_size=PART_BYTES, use_multipart=size > PART_BYTES
            )
        return Stat(size, result["e_tag"] or "")

    def create(self, name: str, data: bytes) -> bool:
        """Whether this call, and no other, made the object."""
        from obstore.exceptions import AlreadyExistsError

        with self.errors():
            try:
                self._store.put(name, data, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def listing(self, folder: str) -> dict[str, Stat]:
        """Every object below a folder, by its name relative to that."""
        with self.errors():
            found = [one for page in self._store.list(f"{folder}/") for one in page]
        return {
            one["path"].removeprefix(f"{folder}/"): Stat(one["size"], one["e_tag"] or "")
            for one in found
        }

    def remove(self, names: Iterable[str]) -> None:
        """Delete objects; those that are not there are no error."""
        for name in names:
            with self.errors(), _none_missing():
                self._store.delete(name)

    def fetch(self, name: str, path: Path) -> str | None:
        """Bring an object to `path`, whole or not at all; its sha256; None without one."""
        digest = hashlib.sha256()
        path.parent.mkdir(parents=True, exist_ok=True)
        with self.errors(), _none_missing() as found, whole_file(path) as beside:
            with beside.open("wb") as file:
                for block in self._store.get(name).stream():
                    file.write(block)
                    digest.update(block)
            found.append(b"")
        return digest.hexdigest() if found else None

    def sha256(self, name: str) -> str | None:
        """sha256 of an object, read now; None if it is gone."""
        digest = hashlib.sha256()
        with self.errors(), _none_missing() as found:
            for block in self._store.get(name).stream():
                digest.update(block)
            found.append(b"")
        return digest.hexdigest() if found else None

    def zarr_store(self) -> "ObjectStore[Any]":
        """The bucket as zarr reads it, chunk by chunk."""
        from zarr.storage import ObjectStore

        return ObjectStore(self._store, read_only=True)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What a server refuses as one `BucketError`; a missing object passes through."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            if _code(error) in MISSING:
                raise BucketError(self.url, _NO_BUCKET.format(name=self.name)) from None
            raise
        except (BaseError, PermissionError) as error:
            raise BucketError(self.url, self._told(error)) from None

    def _told(self, error: BaseException) -> str:
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        code = _code(error)
        if code in MISSING:
            return _NO_BUCKET.format(name=self.name)
        refused = (PermissionError, PermissionDeniedError, UnauthenticatedError)
        if code in DENIED or isinstance(error, refused):
            return (
                f"access is denied ({code or 'no answer why'}); check AWS_ACCESS_KEY_ID, "
                "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN or the role of this machine, "
                "which must be allowed to list, get, put and delete there"
            )
        if code:
            return f"the server answered {code}; see its own documentation"
        return (
            "the server does not answer; check AWS_ENDPOINT_URL (for a server without TLS "
            "AWS_ALLOW_HTTP=true too), AWS_REGION and the network, then run again: what "
            "was finished is kept"
        )

    @property
    def _store(self) -> "S3Store":
        return _opened(self.name, self.prefix)


_NO_BUCKET = "there is no bucket {name}; make it, or check the name and AWS_ENDPOINT_URL"


@cache
def _opened(name: str, prefix: str) -> "S3Store":
    """One client a bucket and process: it keeps connections."""
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise NotAStore(
            f"store s3://{name}/{prefix}: buckets need the package obstore; "
            "pip install 'mtp-heal[s3]'"
        ) from error
    return S3Store(
        name,
        prefix=prefix or None,
        retry_config={
            "max_retries": RETRIES,
            "retry_timeout": timedelta(seconds=RETRY_S),
        },
    )


@contextmanager
def _none_missing() -> Iterator[list[bytes]]:
    """A missing object leaves the list empty; a missing bucket is told."""
    try:
        yield []
    except FileNotFoundError as error:
        if _code(error) in MISSING:
            raise


def _code(error: BaseException) -> str | None:
    """The server's error code, the one part of its answer that holds no secret."""
    match = _CODE.search(str(error))
    return None if match is None else match[1]
