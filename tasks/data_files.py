"""The files of a data set's folder or glob: each folder once, and only files to read."""

import errno
import glob
import stat
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from tasks.errors import InputError

LEADS_NOWHERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
# What would block whoever opens it, or never end.
NO_FILES = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

Identity = tuple[int, int]


def ending(path: Path) -> str:
    """`.txt` of `A.TXT`: what says how a file is read."""
    return path.suffix.lower()


def files_below(
    root: Path, suffixes: Collection[str], skipped: Collection[str] = ()
) -> Iterator[Path]:
    """Files of these suffixes below a folder, hidden and skipped folders left out.

    Among them what only has such a name, and links that lead nowhere and have no suffix,
    which may have led to folders: `refuse_unreadable` tells of those.
    """

    def is_left_out(name: str) -> bool:
        return name in skipped or name.startswith((".", "config-"))

    for folder in folders_below(root, is_left_out):
        for entry in folder.iterdir():
            if ending(entry) in suffixes:
                if not entry.is_dir():
                    yield entry
            elif not (entry.suffix or is_left_out(entry.name) or entry.exists()):
                yield entry


def left_out(root: Path, files: Collection[Path]) -> Counter[str]:
    """How many files below a folder are none of these, by ending; hidden ones uncounted."""
    taken = set(files)
    return Counter(
        ending(entry)
        for folder in folders_below(root, lambda name: name.startswith("."))
        for entry in folder.iterdir()
        if entry not in taken and not entry.name.startswith(".") and not entry.is_dir()
    )


def folders_below(root: Path, is_left_out: Callable[[str], bool]) -> Iterator[Path]:
    """A folder and those below it, each once, whatever links lead to it.

    Folders come before links to them, so that links change no path of theirs. A link to a
    folder above is not followed.
    """
    seen: set[Identity] = set()
    starts: deque[tuple[Path, frozenset[Identity]]] = deque([(root, frozenset())])
    while starts:
        start, above = starts.popleft()
        if _identity(start) in above:
            continue
        above |= {_identity(parent) for parent in start.resolve().parents}
        folders = [start]
        for folder in folders:  # which grows
            if _identity(folder) in seen:
                continue
            seen.add(_identity(folder))
            yield folder
            for entry in sorted(folder.iterdir()):
                if is_left_out(entry.name) or not entry.is_dir():
                    continue
                if entry.is_symlink():
                    starts.append((entry, above))
                else:
                    folders.append(entry)


def matches(pattern: str) -> list[Path]:
    """What a glob means besides folders, in no order; nothing twice through other links."""
    if pattern.endswith("/"):
        return []  # folders alone
    given = Path(pattern)
    parts = given.parts[1:] if given.anchor else given.parts
    found = [Path(given.anchor)]
    for part in parts:
        found = [child for path in found for child in _step(path, part)]
    if parts[-1:] == ("**",):
        found += [child for folder in found for child in _step(folder, "*")]
    once: dict[tuple[Identity, str], Path] = {}
    for path in found:
        if path.name and not path.is_dir():
            once.setdefault((_identity(path.parent), path.name), path)
    return list(once.values())


def _step(path: Path, part: str) -> Iterator[Path]:
    """What one part of a glob means behind a path, links last."""
    if part == "**":
        if path.is_dir():
            yield from folders_below(path, lambda name: name.startswith("."))
        return
    named = glob.glob(part, root_dir=path)  # noqa: PTH207 — Path.glob knows no hidden files
    found = [path / name for name in sorted(named)]
    for child in sorted(found, key=Path.is_symlink):
        if not (glob.has_magic(part) and _leads_up(child)):
            yield child


def _leads_up(path: Path) -> bool:
    """Whether it is a link to a folder above itself."""
    if not (path.is_symlink() and path.is_dir()):
        return False
    here = path.parent.resolve()
    return path.resolve() in (here, *here.parents)


def _identity(folder: Path) -> Identity:
    found = folder.stat()
    return found.st_dev, found.st_ino


def unreadable(path: Path) -> str | None:
    """What to say of a path whose opening would fail, block or never end; None of a file.

    OSError where the system keeps it from us.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if error.errno not in LEADS_NOWHERE or not path.is_symlink():
            raise
        return (
            f"{path}: is a link that leads nowhere, to {path.readlink()}; remove it, or "
            "point it at what there is"
        )
    kind = NO_FILES.get(stat.S_IFMT(mode))
    if kind is None:
        return None
    return f"{path}: is {kind}, not a file; remove it, or write its text into a file"


def refuse_unreadable(paths: Iterable[Path]) -> None:
    """InputError for the first path that is no file and would be opened as one."""
    for path in paths:
        said = unreadable(path)
        if said is not None:
            raise InputError(f"data: {said}")
