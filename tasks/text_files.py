"""Text files of a data set: whether they are text at all, and pieces of them."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, takewhile
from pathlib import Path
from typing import BinaryIO

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


class Pieces:
    """Text files in pieces of about `piece_bytes`: a sample of all of them is few reads.

    Piece k of a file lies between the borders at or after its byte `k · piece_bytes` and
    that of the next: behind a blank line, else behind a line, else between characters.
    """

    def __init__(
        self, files: Sequence[Path], file_bytes: Sequence[int], piece_bytes: int
    ) -> None:
        self.files, self.bytes = files, file_bytes
        self.piece_bytes = piece_bytes
        self.ends = list(accumulate(-(-size // piece_bytes) for size in file_bytes))

    def sizes(self) -> list[int]:
        """Bytes of each piece, about; of all pieces together, exactly."""
        step = self.piece_bytes
        return [min(step, size - at) for size in self.bytes for at in range(0, size, step)]

    def read(self, place: int) -> str:
        """The text of a piece, which can be empty; what isn't UTF-8 is replaced."""
        index = bisect_right(self.ends, place)
        first = place - (self.ends[index - 1] if index else 0)
        with self.files[index].open("rb") as source:
            start, stop = (
                self._border(source, k * self.piece_bytes, self.bytes[index])
                for k in (first, first + 1)
            )
            source.seek(start)
            return source.read(stop - start).decode("utf-8", errors="replace")

    def _border(self, source: BinaryIO, at: int, size: int) -> int:
        if at == 0 or at >= size:
            return min(at, size)
        source.seek(at - 2)
        text = source.read(self.piece_bytes + 2)
        for mark, behind in ((b"\n\n", 0), (b"\n", 1)):
            found = text.find(mark, behind)
            if found >= 0:
                return at - 2 + found + len(mark)
        inside = takewhile(lambda byte: byte & 0xC0 == 0x80, text[2:5])
        return at + len(list(inside))
