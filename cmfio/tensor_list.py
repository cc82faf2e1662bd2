"""`cmf tensors`: the lines of the directory, chosen and ordered."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Literal, cast, get_args

from cmfio.errors import CmfError, MissingTensor
from cmfio.header import TensorEntry
from cmfio.json_text import Json
from cmfio.reader import Container

Order = Literal["file", "name", "bytes", "dtype"]
_KEYS: dict[str, Callable[[TensorEntry], tuple[int | str, str]]] = {
    "name": lambda entry: ("", entry.name),
    "bytes": lambda entry: (-entry.nbytes, entry.name),
    "dtype": lambda entry: (entry.dtype, entry.name),
}


def matching(container: Container, pattern: str | None) -> list[TensorEntry]:
    """The tensors whose name matches a glob (`*` spans dots), in file order.

    MissingTensor if it matches none.
    """
    entries = list(container.entries.values())
    if pattern is None:
        return entries
    found = [entry for entry in entries if fnmatchcase(entry.name, pattern)]
    if not found:
        hint = ", [[] for a [" if "[" in pattern else ""
        raise MissingTensor(
            f"{container.path}: no tensor's name matches {pattern!r}; `cmf tensors` lists "
            f"what it has, * stands for any characters{hint}"
        )
    return found


def ordered(entries: Sequence[TensorEntry], order: Order) -> list[TensorEntry]:
    """By name, by bytes (largest first), by dtype; or as they are, in file order."""
    return list(entries) if order == "file" else sorted(entries, key=_KEYS[order])


def order_named(word: str) -> Order:
    """`word` as an order; CmfError lists those there are."""
    for order in get_args(Order):
        if word == order:
            return cast("Order", order)
    raise CmfError(f"no order {word!r}; there are {', '.join(get_args(Order))}")


def tensor_line(entry: TensorEntry) -> str:
    """dtype, shape, bytes, name."""
    return f"{entry.dtype:9}{shape_text(entry.shape):>18}{entry.nbytes:>16,}  {entry.name}"


def tensor_json(entry: TensorEntry) -> dict[str, Json]:
    """All of the record, for a script; the hash as 16 hex digits."""
    return {
        **vars(entry),
        "shape": list[Json](entry.shape),
        "hash64": f"{entry.hash64:016x}",
    }


def shape_text(shape: Sequence[int]) -> str:
    """`40×32`."""
    return "×".join(map(str, shape)) or "scalar"
