"""Text files of a data set: their first bytes, and whether they are text at all."""

from collections.abc import Sequence
from pathlib import Path

from tasks.errors import InputError

LOOKED_AT_BYTES = 8192


def refuse_binary(files: Sequence[Path]) -> None:
    """InputError for a file with a zero byte early on, as models and archives have."""
    for file in files:
        with file.open("rb") as source:
            at = source.read(LOOKED_AT_BYTES).find(b"\0")
        if at >= 0:
            raise InputError(
                f"data: {file}: is no text, byte {at:,} is zero; give UTF-8 text, or token "
                "ids in a .parquet, .arrow or .jsonl file with a column `ids`"
            )


def head_of(file: Path, most_bytes: int) -> str:
    """The text's first bytes; what isn't UTF-8 is replaced."""
    with file.open("rb") as source:
        return source.read(most_bytes).decode("utf-8", errors="replace")
