"""Data sets as the user names them, and the records they hold.

A data set is a path, folder or glob of `.parquet`, `.arrow`, `.jsonl` (a list column `ids`,
or `text`), or of text files; `python:stdlib` and `python:topics` are text that every Python
carries. Records come in file order; a `split` column keeps only its `train` rows.
"""

import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from conf.schema import DataSpec
from store.digests import FileDigests
from store.keys import digest_of
from tasks.data_files import (
    ending,
    files_below,
    left_out,
    matches,
    refuse_unreadable,
    unreadable,
)
from tasks.errors import InputError
from tasks.seen import Seen, look_at, refuse_changed
from tasks.table_files import columns_of, rows_of
from tasks.text_files import Pieces, refuse_other

TABLES = {".parquet", ".arrow", ".jsonl"}
TEXTS = {
    ".txt",
    ".md",
    ".py",
    ".rst",
    ".text",
    ".c",
    ".h",
    ".rs",
    ".js",
    ".ts",
    ".java",
    ".go",
    ".html",
}
# Of the standard library: what isn't it, and what isn't prose or program.
SKIPPED_FOLDERS = frozenset(
    {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idlelib"}
)
MAX_ID = (1 << 32) - 1
GIVE = "give a .parquet, .arrow, .jsonl or text file, a folder or a glob"

Kind = Literal["ids", "text"]


@dataclass(frozen=True)
class DataSet:
    """One data set: its files in order, what they hold, the digest of their bytes.

    `seen` are the files as they were when it was taken, `folder` what they were found in.
    """

    name: str
    tokens: int
    files: tuple[Path, ...]
    kind: Literal["table", "text", "topics"]
    content_digest: str
    seen: tuple[Seen, ...] = field(default=(), compare=False)
    folder: Path | None = field(default=None, compare=False)

    def refuse_changed(self) -> None:
        """InputError unless the files are those that the digest was taken of."""
        refuse_changed(self.seen, look_at(self.files))

    def left_out(self) -> str | None:
        """What of its folder is not read, since nothing is known of the ending."""
        if self.folder is None:
            return None
        others = left_out(self.folder, self.files).most_common()
        if not others:
            return None
        listed = ", ".join(f"{count:,} {end or 'without any'}" for end, count in others)
        return f"{len(self.files):,} files; left out by their ending: {listed}"

    @cached_property
    def file_bytes(self) -> tuple[int, ...]:
        """Each file's size, asked once."""
        return tuple(file.stat().st_size for file in self.files)

    def pieces(self, piece_bytes: int) -> Pieces:
        """The text of its files in pieces of about `piece_bytes`."""
        return Pieces(self.files, self.file_bytes, piece_bytes)


def parse_spec(spec: DataSpec | str) -> DataSpec:
    """`PATH[@TOKENS]` as a DataSpec; only an integer behind the last `@` is a cap."""
    if isinstance(spec, DataSpec):
        return spec
    path, at, cap = spec.rpartition("@")
    if at and cap.isdecimal():
        if int(cap) == 0:
            raise InputError(
                f"data: {spec}: a cap of 0 tokens leaves nothing; leave it out or raise it"
            )
        return DataSpec(path=path, tokens=int(cap))
    return DataSpec(path=spec)


def absence(spec: DataSpec | str) -> str | None:
    """What to say of a data set that names nothing there is; None if something is there."""
    path = parse_spec(spec).path
    if not path:
        return f"names no path; {GIVE}"
    try:
        is_there = path.startswith("python:") or Path(path).exists()
        if not is_there and Path(path).is_symlink():
            return unreadable(Path(path))
        if is_there or matches(path):
            return None
    except OSError as error:  # a name that no file system takes, a folder kept shut
        return f"{error.filename}: cannot be read: {error.strerror}"
    given, at, cap = path.rpartition("@")
    if not at or "/" in cap:
        return f"{path}: there is no such file, folder or match; {GIVE}"
    how = f"`{given}@5000`" if isinstance(spec, str) else "`tokens: 5000` beside the path"
    return (
        f"{path}: there is no such file, folder or match; if {cap!r} behind @ is to cap "
        f"the tokens taken, write a whole number, as {how}"
    )


def open_set(spec: DataSpec | str, digests: FileDigests) -> DataSet:
    """The data set a spec names; InputError if it is missing or of a kind we don't read."""
    wanted = parse_spec(spec)
    given = Path(wanted.path)
    name = wanted.name or given.name
    kind: Literal["table", "text", "topics"]
    try:
        if wanted.path.startswith("python:"):
            files, kind = _python_text(wanted.path)
        else:
            files = _find_files(spec)
            kind = "table" if ending(files[0]) in TABLES else "text"
            if kind == "text":
                refuse_other(files, digests)
        seen = look_at(files)
        shas = [digests.sha256(file) for file in files]
    except OSError as error:
        raise InputError(
            f"data: {error.filename}: cannot be read: {error.strerror}"
        ) from error
    return DataSet(
        name,
        wanted.tokens,
        tuple(files),
        kind,
        digest_of({"kind": kind, "files": shas}),
        seen,
        given if given.is_dir() else None,
    )


def _python_text(path: str) -> tuple[list[Path], Literal["text", "topics"]]:
    stdlib = Path(sysconfig.get_path("stdlib"))
    if path == "python:topics":
        return [stdlib / "pydoc_data" / "topics.py"], "topics"
    named, _, package = path.partition("/")
    folder = stdlib / package
    is_inside = folder.resolve().is_relative_to(stdlib.resolve())
    if named == "python:stdlib" and is_inside and folder.is_dir():
        return sorted(files_below(folder, {".py"}, SKIPPED_FOLDERS)), "text"
    raise InputError(
        f"data: {path}: known are python:topics, python:stdlib and its packages, as "
        "python:stdlib/json"
    )


def _find_files(spec: DataSpec | str) -> list[Path]:
    path = parse_spec(spec).path
    given = Path(path)
    _refuse_tdata(given)
    missing = absence(spec)
    if missing is not None:
        raise InputError(f"data: {missing}")
    if given.is_dir():
        files = sorted(files_below(given, TABLES | TEXTS))
    else:
        files = [given] if given.exists() else sorted(matches(path))
    if not files:
        raise InputError(f"data: {path}: holds no text or table files; {GIVE}")
    refuse_unreadable(files)
    for file in files:
        _refuse_tdata(file)
    if len({ending(file) in TABLES for file in files}) > 1:
        raise InputError(
            f"data: {path}: mixes tables and text files; make them two data sets"
        )
    return files


def _refuse_tdata(path: Path) -> None:
    if ".tdata" in path.suffixes:
        raise InputError(
            f"data: {path}: .tdata is not read, its layout was never published; write a "
            "Parquet file with a list column `ids` (token ids) and, if you hold data out "
            "yourself, a column `split` whose training rows say `train`"
        )


def weigh(data: DataSet, piece_bytes: int) -> list[int]:
    """Each record's size, in file order: ids of a table's `ids`, else bytes of text.

    The records of text files are their pieces of about `piece_bytes`.
    """
    if data.kind == "topics":
        return [len(text) for text in _topics()]
    if data.kind == "text":
        return data.pieces(piece_bytes).sizes()
    column = kind_of(data)
    return [len(_checked(row, column, data)) for row in rows_of(data.files)]


def gather(data: DataSet, places: Sequence[int], piece_bytes: int) -> list[str | list[int]]:
    """The records at `places`, in that order."""
    if data.kind == "topics":
        topics = _topics()
        return [topics[place] for place in places]
    if data.kind == "text":
        pieces = data.pieces(piece_bytes)
        return [pieces.read(place) for place in places]
    wanted, column = set(places), kind_of(data)
    found = {
        i: _checked(row, column, data)
        for i, row in enumerate(rows_of(data.files))
        if i in wanted
    }
    return [found[place] for place in places]


def _topics() -> list[str]:
    from pydoc_data.topics import topics

    return [topics[key] for key in sorted(topics)]


def _checked(row: dict[str, object], column: Kind, data: DataSet) -> str | list[int]:
    value = row.get(column)
    if column == "text" and isinstance(value, str):
        _refuse_half_characters(value, data)
        return value
    if (
        column == "ids"
        and isinstance(value, list)
        and all(type(i) is int and 0 <= i <= MAX_ID for i in value)
    ):
        return value
    what = "a string" if column == "text" else "a list of token ids"
    raise InputError(
        f"data set {data.name}: a record's `{column}` is {_short(value)}, not {what}"
    )


def _refuse_half_characters(text: str, data: DataSet) -> None:
    """InputError for what JSON can spell and no encoding has, as `\\ud83d` alone."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"data set {data.name}: a record's `text` holds half a character, "
            f"{text[error.start]!a} behind {text[: error.start][-20:]!r}; leave it out"
        ) from error


def kind_of(data: DataSet) -> Kind:
    """Whether a set holds token ids or text to be tokenised."""
    if data.kind != "table":
        return "text"
    if not any(data.file_bytes):
        raise InputError(f"data set {data.name}: is empty; give files that hold records")
    columns = set(columns_of(data.files[0]))
    for kind in ("ids", "text"):
        if kind in columns:
            return kind
    raise InputError(
        f"data: {data.files[0]}: has the columns {', '.join(sorted(columns)) or 'none'}; "
        "it needs a list column `ids` (token ids) or a column `text`"
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
