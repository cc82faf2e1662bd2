"""The records of a data set, in its shuffled order, as token ids (healing.md §4)."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from cmfio.tokenizer import load_tokenizer
from store.artifact import Artifact
from tasks.errors import InputError
from tasks.model_file import ModelPart, vocab_bytes
from tasks.sources import DataSet, gather, kind_of, weigh
from tasks.windows import cut_text, shuffled, take_records

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

BYTES_A_TOKEN = 4  # of program text and English, about
TEXT_PIECE_BYTES = 4096
WHOLE = 1 << 62  # bytes, more than any file has


def read_records(
    data: DataSet, tokens: int, limit: int, tokenizer: ModelPart | Artifact | None
) -> list[tuple[int, ...]]:
    """The set's records, shuffled and capped (healing.md §4, steps 1 to 3).

    Text files are cut into records of at most `limit` tokens, and those shuffled. Where the
    cap leaves most of the text out, pieces of about `limit` tokens are shuffled first and
    tokenised until it is filled: so a small cap is a sample of all files, and only what
    fills it is ever read and tokenised.
    """
    if kind_of(data) == "ids":
        return take_records(_documents(data, tokens, limit, _as_ids), tokens)
    if tokenizer is None:
        raise InputError(
            f"data set {data.name}: holds text and the model carries no tokenizer; give "
            "data with a column `ids`, or put the model's tokenizer.json into its file"
        )
    encoder = load_tokenizer(vocab_bytes(tokenizer), "the model")
    if data.kind == "table":
        return take_records(
            _documents(data, tokens, limit, lambda t: [_encode(encoder, t).ids]), tokens
        )

    def pieces(text: str | list[int]) -> list[list[int]]:
        encoding = _encode(encoder, text)
        ends = [end for _, end in encoding.offsets]
        return list(cut_text(encoding.ids, str(text), ends, limit))

    records = list(_documents(data, tokens, limit, pieces))
    return take_records([records[place] for place in shuffled(len(records))], tokens)


def bytes_to_read(data: DataSet, tokens: int) -> int:
    """About how much `read_records` reads: all of a table, of text what fills the cap."""
    every = sum(data.file_bytes)
    return every if data.kind == "table" else min(every, tokens * BYTES_A_TOKEN)


def take_texts(data: DataSet, most_bytes: int) -> list[str]:
    """Texts of a set in its shuffled order until they hold `most_bytes`."""
    sizes = weigh(data, TEXT_PIECE_BYTES)
    chosen = _prefix(shuffled(len(sizes)), sizes, most_bytes)
    texts = [str(text) for text in gather(data, chosen, TEXT_PIECE_BYTES)]
    data.refuse_changed()
    return texts


def _as_ids(document: str | list[int]) -> list[list[int]]:
    assert isinstance(document, list)
    return [document]


def _encode(encoder: "Tokenizer", text: str | list[int]) -> "Encoding":
    assert isinstance(text, str)
    return encoder.encode(text, add_special_tokens=False)


def _documents(
    data: DataSet,
    tokens: int,
    limit: int,
    records_of: Callable[[str | list[int]], list[list[int]]],
) -> Iterator[list[int]]:
    """Records of the documents in shuffled order, until they hold `tokens` ids."""
    piece_bytes = _piece_bytes(data, tokens, limit)
    sizes = weigh(data, piece_bytes)
    data.refuse_changed()
    if not any(sizes):
        columns = ", its columns, and that a column `split` says `train` somewhere"
        raise InputError(
            f"data set {data.name}: has no records with anything in them; check its path"
            + (columns if data.kind == "table" else "")
        )
    waiting, left = shuffled(len(sizes)), tokens
    while waiting and left > 0:
        chosen = _prefix(waiting, sizes, left)
        waiting = waiting[len(chosen) :]
        documents = gather(data, chosen, piece_bytes)
        data.refuse_changed()
        for document in documents:
            for record in records_of(document):
                yield record
                left -= len(record)
            if left <= 0:
                return


def _piece_bytes(data: DataSet, tokens: int, limit: int) -> int:
    """Whole files where the cap takes about all of them, else a record's worth of text."""
    takes_all = sum(data.file_bytes) <= tokens * BYTES_A_TOKEN
    return WHOLE if takes_all else limit * BYTES_A_TOKEN


def _prefix(waiting: Sequence[int], sizes: Sequence[int], enough: int) -> list[int]:
    """The first places whose sizes reach `enough` (tokens are never more)."""
    total = 0
    for count, place in enumerate(waiting, start=1):
        total += sizes[place]
        if total >= enough:
            return list(waiting[:count])
    return list(waiting)
