"""The model's tokenizer, from the tokenizer.json that the container carries."""

from pathlib import Path
from typing import TYPE_CHECKING

from cmfio.errors import CmfError, ParseError
from cmfio.hash64 import Bytes

if TYPE_CHECKING:  # a quarter of a second, and most commands need none
    from tokenizers import Tokenizer


def load_tokenizer(vocab: Bytes | None, path: Path | str) -> "Tokenizer":
    """The tokenizer in `vocab`; `path` is only for the error's text.

    CmfError if the file carries none, ParseError if it isn't a tokenizer.json.
    """
    if vocab is None:
        raise CmfError(
            f"{path}: carries no tokenizer, so text can't be turned into tokens; give data "
            "sets with a column `ids`, or put the model's tokenizer.json into the file"
        )
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_buffer(bytes(vocab))
    except Exception as error:  # the library raises nothing narrower
        raise ParseError(f"{path}: its tokenizer can't be read: {error}") from error
