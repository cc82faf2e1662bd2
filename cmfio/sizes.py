"""`cmf sizes`: what a model would weigh in every codec, without encoding anything."""

from dataclasses import asdict, dataclass

from cmfio.codecs.registry import CODECS
from cmfio.convert import target_codec
from cmfio.dtypes import Shape, element_count
from cmfio.errors import CmfError
from cmfio.header import TensorEntry
from cmfio.identity import DRAFT_PREFIX
from cmfio.json_text import Json
from cmfio.policy import parse_request
from cmfio.reader import Container

VBIT_MEAN_BITS = 4.25
KEPT_SHARE = 0.01  # of the weights, in q1s


@dataclass(frozen=True)
class Size:
    """Bytes of tensors: the draft in this codec; the model with such a draft; all of it.

    Where the weights decide (vbit, vbit_ro, q1s) it is an estimate from their usual bits.
    """

    codec: str
    draft: int
    with_draft: int
    model: int
    is_exact: bool

    def to_json(self) -> dict[str, Json]:
        """For a script."""
        return asdict(self)


def sizes(container: Container) -> list[Size]:
    """A line a codec, preceded by `keep`: what the file holds now."""
    return [_size(container, word) for word in ("keep", *CODECS)]


def sizes_text(lines: list[Size]) -> str:
    """The lines as a table."""
    rows = [f"{'codec':13}{'draft':>16}{'with this draft':>18}{'whole model':>18}"]
    for line in lines:
        mark = "" if line.is_exact else "  about"
        rows.append(
            f"{line.codec:13}{line.draft:>16,}{line.with_draft:>18,}{line.model:>18,}{mark}"
        )
    return "\n".join(rows)


def _size(container: Container, word: str) -> Size:
    request = parse_request(word)
    now, then, draft_now, draft_then = 0, 0, 0, 0
    is_exact = True
    for entry in container.entries.values():
        codec = target_codec(entry, request, container.header)
        size = entry.nbytes if codec is None else _bytes_in(codec, entry)
        is_exact &= codec is None or CODECS[codec].nbytes(entry.shape) is not None
        now, then = now + entry.nbytes, then + size
        if entry.name.startswith(DRAFT_PREFIX):
            draft_now, draft_then = draft_now + entry.nbytes, draft_then + size
    return Size(word, draft_then, now - draft_now + draft_then, then, is_exact)


def _bytes_in(codec: str, entry: TensorEntry) -> int:
    known = CODECS[codec].nbytes(entry.shape)
    return _usual_bytes(codec, entry.shape) if known is None else known


def _usual_bytes(codec: str, shape: Shape) -> int:
    count, rows = element_count(shape), shape[0]
    tiles = -(-count // 32)
    if codec == "q1s":
        return 6 * tiles + 4 + 6 * round(KEPT_SHARE * count)
    if codec not in {"vbit", "vbit_ro"}:
        raise CmfError(f"codec {codec!r} doesn't say how many bytes it takes")
    offsets = 4 * (rows + 1) if codec == "vbit_ro" else 0
    return rows + 2 * tiles + offsets + round(VBIT_MEAN_BITS * count / 8)
