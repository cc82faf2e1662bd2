"""`cmf sizes`: what a model would weigh in every codec, without encoding anything."""

from dataclasses import asdict, dataclass

from cmfio.codecs.registry import CODECS
from cmfio.convert import target_codec
from cmfio.identity import DRAFT_PREFIX
from cmfio.json_text import Json
from cmfio.policy import parse_request
from cmfio.reader import Container


@dataclass(frozen=True)
class Size:
    """Bytes of tensors: the draft in this codec; the model with such a draft; all of it.

    Where the weights decide it is an estimate from their usual bits.
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


def sizes_table(sizes: list[Size]) -> list[str]:
    """The lines of a table; of the whole model alone where it has no draft."""
    has_draft = any(size.draft for size in sizes)
    drafts = f"{'draft':>16}{'with this draft':>18}" if has_draft else ""
    rows = [f"{'codec':13}{drafts}{'whole model':>18}"]
    for size in sizes:
        mark = "" if size.is_exact else "  about"
        draft = f"{size.draft:>16,}{size.with_draft:>18,}" if has_draft else ""
        rows.append(f"{size.codec:13}{draft}{size.model:>18,}{mark}")
    return rows if has_draft else [*rows, "it carries no draft"]


def _size(container: Container, word: str) -> Size:
    request = parse_request(word)
    now, then, draft_now, draft_then = 0, 0, 0, 0
    is_exact = True
    for entry in container.entries.values():
        codec = target_codec(entry, request, container.header)
        size = entry.nbytes if codec is None else CODECS[codec].usual_nbytes(entry.shape)
        is_exact &= codec is None or CODECS[codec].nbytes(entry.shape) is not None
        now, then = now + entry.nbytes, then + size
        if entry.name.startswith(DRAFT_PREFIX):
            draft_now, draft_then = draft_now + entry.nbytes, draft_then + size
    return Size(word, draft_then, now - draft_now + draft_then, then, is_exact)
