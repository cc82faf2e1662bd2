"""What can be wrong with the store, each as one plain sentence a user can act on."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = {errno.ENOSPC, errno.EDQUOT}
NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM}


class ArtifactError(Exception):
    """Base of everything the store raises on purpose."""


class ArtifactDamaged(ArtifactError):  # noqa: N818  # the name says the state
    """A file of a finished artifact is missing or no longer holds what was written."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}; run the stage that makes it again")
        self.path = path
        self.problem = problem


class BadName(ArtifactError):  # noqa: N818
    """A stage, key, array or file name that could leave its place in the store."""


class UnknownName(ArtifactError):  # noqa: N818
    """No artifact, or more than one, goes by the name a user gave."""


class BadBundle(ArtifactError):  # noqa: N818
    """A file to import that is no export, or not as it was written."""


class NotAStore(ArtifactError):  # noqa: N818
    """A path that can't be a store's folder."""


class BucketError(ArtifactError):
    """A bucket that is missing, refused or away."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(f"{url}: {problem}")


class NotJson(ArtifactError):  # noqa: N818
    """A value that a manifest or a key cannot hold."""


class LeaseLost(ArtifactError):  # noqa: N818
    """A lock was taken over while its holder gave no sign of life."""

    def __init__(self, name: str, where: str) -> None:
        super().__init__(
            f"{where}: the lock on {name} was taken over by another run, since this one "
            "gave no sign of life for too long (asleep, or cut off from the store); it "
            "published nothing, run again: it finds what the other made"
        )


class StoreReadOnly(ArtifactError):  # noqa: N818
    """Something must be written and the store does not allow it."""


class DiskFull(ArtifactError):  # noqa: N818
    """No space, or no quota, is left."""


@contextmanager
def storage_errors(root: Path, need: str) -> Iterator[None]:
    """Turn a full disk or an unwritable store into one sentence; `need` says who wrote.

    Also where another error was raised from the system's own. A refused permission counts
    only for a file under `root`: one on a user's own data file is not the store's and
    passes through.
    """
    try:
        yield
    except ArtifactError:
        raise
    except Exception as error:
        known = _known(_system_error(error), root, need)
        if known is None:
            raise
        raise known from error


def _system_error(error: BaseException | None) -> OSError | None:
    """The system's error that this one was raised from, if there is one."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error


def _known(error: OSError | None, root: Path, need: str) -> ArtifactError | None:
    if error is None:
        return None
    if error.errno in FULL:
        return DiskFull(
            f"{root}: no space is left for {need}; free some or choose another store "
            "with --store, then run again: what was finished is kept"
        )
    if error.errno in NOT_WRITABLE and _lies_under(root, error):
        return StoreReadOnly(
            f"{root}: {need} must be written and the store is read-only here; make it "
            "writable or choose another with --store"
        )
    if error.errno == errno.ENOENT and _lies_under(root, error) and not root.exists():
        return NotAStore(
            f"{root}: no folder can be made there ({error.strerror}); choose another store "
            "with --store"
        )
    if error.errno == errno.ENOTDIR and _lies_under(root, error):
        return ArtifactError(
            f"{root}: a file lies where the store needs a folder ({error.filename}); "
            "choose another store with --store"
        )
    return None


def _lies_under(root: Path, error: OSError) -> bool:
    named = [
        Path(name) for name in (error.filename, error.filename2) if isinstance(name, str)
    ]
    return any(path.absolute().is_relative_to(root) for path in named)
