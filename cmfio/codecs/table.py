"""The tables of docs/codecs.md, made from the code: `python -m cmfio.codecs.table`."""

import sys
from collections.abc import Iterable, Sequence

from cmfio.codecs.base import Codec, MatrixCodec, TiledCodec
from cmfio.codecs.registry import CODECS
from cmfio.codecs.words import CARRIED, WORDS
from cmfio.dtypes import dtype_named
from cmfio.policy import PROFILE, PROFILES, UNGROUPED

SHAPE = (4096, 4096)


def codec_table() -> str:
    """A line a codec, then the dtypes that hold no weights."""
    head = ("codec", "dtype (id)", "bits a weight", "shapes", "refused from", "what")
    rows = [_codec_row(codec) for codec in CODECS.values()]
    for name in (*WORDS, *CARRIED):
        what = "whole numbers" if name in WORDS else "reserved: bytes, carried as they are"
        rows.append(("", _dtype(name), "", "any", "", what))
    return _markdown(head, rows)


def profile_table() -> str:
    """A line for each of the converter's profiles."""
    head = ("profile", "matrices", "columns not in 32s", "`quant_type`")
    rows = []
    for profile in PROFILES:
        names = ", ".join(f"`{PROFILE}{name}`" for name in profile.names)
        codec = "q2tp or q4tp" if profile.codec == "q2tp" else profile.codec
        plain = CODECS[profile.codec]
        ungrouped = UNGROUPED if isinstance(plain, TiledCodec) else "the same"
        rows.append((names, codec, ungrouped, plain.label))
    return _markdown(head, rows)


def _codec_row(codec: Codec) -> tuple[str, ...]:
    size = codec.nbytes(SHAPE)
    bits = f"{8 * size / (SHAPE[0] * SHAPE[1]):.2f}" if size else "by the weights"
    shapes = "any"
    if isinstance(codec, MatrixCodec | TiledCodec):
        shapes = "2-D" if isinstance(codec, MatrixCodec) else "2-D, columns in 32s"
    limit = "" if codec.limit == float("inf") else f"{codec.limit:,.7g}"
    return f"`{codec.name}`", _dtype(codec.dtype), bits, shapes, limit, codec.what


def _dtype(name: str) -> str:
    return f"{name} ({dtype_named(name).id})"


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(codec_table() + "\n" + profile_table())
