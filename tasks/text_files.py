"""Text files of a data set: whether they are text at all, and pieces of them."""

from bisect import bisect_right
from codecs import getincrementaldecoder
from collections.abc import Sequence
from itertools import accumulate, takewhile
from pathlib import Path
from typing import BinaryIO

from store.digests import FileDigests
from tasks.errors import InputError

LOOKED_AT_BYTES = 8192
BLOCK_BYTES = 1 << 20
# Smaller files are read as fast as what is remembered of them.
REMEMBERED_BYTES = 1 << 16
FACT = "is_utf8"


def refuse_other(files: Sequence[Path], digests: FileDigests) -> None:
    """InputError for a file with a zero byte early on, as models and archives have, or of
    another encoding than UTF-8: it tells which byte, the first being 0.

    Of large files it is remembered in `digests`, so that they are read once.
    """
    for file in files:
        is_large = file.stat().st_size > REMEMBERED_BYTES
        if is_large and digests.recall(file, FACT) is True:
            continue
        _refuse_other(file)
        if is_large:
            digests.remember(file, FACT, value=True)


def _refuse_other(file: Path) -> None:
    decoder = getincrementaldecoder("utf-8")()
    with file.open("rb") as source:
        at, block = 0, source.read(LOOKED_AT_BYTES)
        zero = block.find(b"\0")
        if zero >= 0:
            raise InputError(
                f"data: {file}: is no text, byte {zero:,} is zero; give UTF-8 text, or "
                "token ids in a .parquet, .arrow or .jsonl file with a column `ids`"
            )
        while True:
            waiting, _ = decoder.getstate()  # bytes of a character cut by a block's end
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                raise _not_utf8(file, at - len(waiting), error) from error
            if not block:
                return
            at += len(block)
            block = source.read(BLOCK_BYTES)


def _not_utf8(file: Path, start: int, error: UnicodeDecodeError) -> InputError:
    """What to raise of a file whose bytes from `start` on didn't decode."""
    byte = error.object[error.start]
    return InputError(
        f"data: {file}: is not UTF-8, byte {start + error.start:,} is 0x{byte:02x}; give "
        "UTF-8 text (`iconv -f latin1 -t utf-8` converts Latin-1)"
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
        """The text of a piece, which can be empty; InputError if it is UTF-8 no more."""
        index = bisect_right(self.ends, place)
        first = place - (self.ends[index - 1] if index else 0)
        with self.files[index].open("rb") as source:
            start, stop = (
                self._border(source, k * self.piece_bytes, self.bytes[index])
                for k in (first, first + 1)
            )
            source.seek(start)
            text = source.read(stop - start)
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(self.files[index], start, error) from error

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
