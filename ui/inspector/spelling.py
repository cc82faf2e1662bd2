"""Tokens as text: the model's own tokenizer, taken from a file that the store holds."""

from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from cmfio.errors import CmfError
from cmfio.reader import open_container
from cmfio.tokenizer import load_tokenizer
from ui.inspector.depot import Depot

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MODEL, TOKENIZER = "model.cmf", "tokenizer.json"
SPACE, NEWLINE, TAB = "␣", "↵", "⇥"


@dataclass(frozen=True)
class Spelling:
    """How ids are spelled; `why` says what is amiss where they stay numbers."""

    tokenizer: "Tokenizer | None"
    why: str = ""
    _known: dict[int, str] = field(default_factory=dict, repr=False)

    def text(self, token: int) -> str:
        """The token's text with its own spaces; `<0xE2>` for bytes that are no text."""
        if token not in self._known:
            self._known[token] = self._spell(token)
        return self._known[token]

    def alone(self, token: int) -> str:
        """The same where it stands by itself: spaces and line ends made visible."""
        if self.tokenizer is None:
            return str(token)
        return shown(self.text(token)).replace(" ", SPACE) or "∅"

    def _spell(self, token: int) -> str:
        piece = None if self.tokenizer is None else self.tokenizer.id_to_token(token)
        if self.tokenizer is None or piece is None:
            return f" {token}"
        if piece.startswith("▁"):
            return str(piece).replace("▁", " ")
        text = str(self.tokenizer.decode([token], skip_special_tokens=False))
        if "\ufffd" in text:
            return _bytes_of(str(piece))
        return text or str(piece)


def shown(text: str) -> str:
    """Line ends, tabs and control characters as marks."""
    marked = text.replace("\r\n", NEWLINE).replace("\n", NEWLINE).replace("\t", TAB)
    return "".join(c if c.isprintable() else f"<{ord(c):#04x}>" for c in marked)


def _bytes_of(piece: str) -> str:
    """A byte-level piece that is no text by itself, byte by byte."""
    table = _byte_letters()
    if not all(letter in table for letter in piece):
        return piece
    codes = [table[letter] for letter in piece]
    return "".join(chr(c) if 32 <= c < 127 else f"<0x{c:02X}>" for c in codes)


@cache
def _byte_letters() -> dict[str, int]:
    """The letter that stands for each byte in byte-level BPE (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [code for code in range(256) if code not in plain]
    return {chr(c): c for c in plain} | {chr(256 + i): c for i, c in enumerate(others)}


def spelling_of(depot: Depot, trunk: str) -> Spelling:
    """The spelling of the trunk with that digest, from a file that was healed from it."""
    for entry in depot.entries():
        if entry.stage not in ("rewrite_model", "rewrite_checkpoint"):
            continue
        said = entry.manifest.settings.get("provenance") if entry.manifest else None
        if isinstance(said, dict) and said.get("trunk") == trunk:
            return _load(entry.path, entry.changed)
    return Spelling(None, "The store holds no file of this model, so tokens stay numbers.")


@lru_cache(maxsize=4)
def _load(folder: Path, changed: float) -> Spelling:
    """Of a folder as it was at `changed`."""
    try:
        return Spelling(load_tokenizer(_vocab(folder), folder))
    except (CmfError, OSError) as error:
        return Spelling(None, f"Tokens stay numbers: {error}")


def _vocab(folder: Path) -> bytes | None:
    if (folder / TOKENIZER).is_file():
        return (folder / TOKENIZER).read_bytes()
    with open_container(folder / MODEL) as container:
        return None if container.vocab is None else bytes(container.vocab)
