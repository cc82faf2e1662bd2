"""Whether a store can lie where it is to: told before anything is made there."""

import os
import tempfile
from pathlib import Path

from store.errors import NotAStore, StoreReadOnly

ELSEWHERE = (
    "name a folder with --store, HEAL_STORE or runtime.store (it is made if it is missing)"
)


def refuse_no_folder(root: Path) -> None:
    """NotAStore for what is a file, lies in one, can't be looked into or be a path at all.

    A store that is missing is none of these: to look for things in one is to find nothing.
    """
    try:
        there = _nearest(root)
        if there == root.absolute() and there.is_dir():
            os.scandir(there).close()
            (there / "locks").exists()  # raises where names in it may not be asked for
    except PermissionError as error:
        raise NotAStore(
            f"store {root}: {error.filename} may not be read by you; make it readable, or "
            f"{ELSEWHERE}"
        ) from error
    except (OSError, ValueError) as error:
        raise NotAStore(f"store {str(root)!r}: can't be a path ({error})") from error
    if not there.is_dir():
        what = "a file" if there.exists() else "a link that leads nowhere"
        raise NotAStore(
            f"store {root}: {there} is {what}, and a store is a folder; {ELSEWHERE}"
        )


def refuse_unmakeable(root: Path) -> None:
    """NotAStore for a store that is missing and can't be made; leaves nothing behind.

    Whether /proc and its like take a folder only shows when one is made, so one is, beside.
    """
    refuse_no_folder(root)
    there = _nearest(root)
    if there == root.absolute():
        return
    try:
        Path(tempfile.mkdtemp(prefix=".heal-", dir=there)).rmdir()
    except OSError as error:
        raise NotAStore(
            f"store {root}: no folder can be made in {there} ({error.strerror}); "
            f"{ELSEWHERE}"
        ) from error


def refuse_read_only(root: Path, what: str) -> None:
    """StoreReadOnly where `what` would have to write into a store that takes nothing."""
    effective = os.access in os.supports_effective_ids
    if root.is_dir() and not os.access(root, os.W_OK | os.X_OK, effective_ids=effective):
        raise StoreReadOnly(
            f"{root}: {what} must be written and the store is read-only here; make it "
            "writable or choose another with --store"
        )


def _nearest(root: Path) -> Path:
    """The path itself if anything is there, else the nearest folder above it."""
    lines = (root.absolute(), *root.absolute().parents)
    return next(path for path in lines if path.exists() or path.is_symlink())
