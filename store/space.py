"""Room on the disk: what is free, what is taken, and a refusal before it runs out."""

import shutil
from pathlib import Path

from store.errors import DiskFull

UNITS = ("B", "kB", "MB", "GB", "TB")


def free_bytes(path: Path) -> int:
    """What may still be written where `path` is, or is to be."""
    folder = path.absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def bytes_in(folder: Path) -> int:
    """The size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def refuse_little_room(root: Path, need: int, what: str) -> None:
    """DiskFull, before anything is written, if `what` needs more bytes than are free."""
    free = free_bytes(root)
    if need > free:
        raise DiskFull(
            f"{root}: {what} needs about {size_text(need)}, {size_text(free)} are free on "
            "that disk; free some or choose another store with --store, then run again: "
            "what was finished is kept"
        )


def size_text(size_bytes: int) -> str:
    """`183 MB`, `1.24 GB`: three significant digits, powers of 1000."""
    size, unit = float(size_bytes), 0
    while size >= 999.5 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {UNITS[unit]}" if size >= 99.95 else f"{size:.3g} {UNITS[unit]}"
