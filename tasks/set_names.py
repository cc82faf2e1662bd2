"""What a data set may be called: names are shown on terminals, pages and in Prefect."""

import unicodedata
from collections.abc import Sequence

from tasks.errors import InputError

MOST_CHARS = 255
# Control characters, halves of characters, line and paragraph separators.
UNSHOWN = {"Cc", "Cs", "Zl", "Zp"}
# What turns the text behind it around.
TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def refuse_bad_names(names: Sequence[str]) -> None:
    """InputError for a name that can't be shown as it is, or that two sets have.

    Else any text is a name: none becomes a path.
    """
    for name in names:
        if len(name) > MOST_CHARS:
            raise InputError(
                f"data: a set's name has {len(name)} characters ({name[:20]!r}…); give it "
                f"a `name` of at most {MOST_CHARS}"
            )
        if any(_is_unshown(char) for char in name):
            raise InputError(
                f"data: the set's name {name!a} holds characters that would not be "
                "shown as they are; give it a `name` without them"
            )
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InputError(
            f"data: two sets are called {', '.join(sorted(twice))}; give each a `name` of "
            "its own"
        )


def _is_unshown(char: str) -> bool:
    return (
        unicodedata.category(char) in UNSHOWN or unicodedata.bidirectional(char) in TURNING
    )
