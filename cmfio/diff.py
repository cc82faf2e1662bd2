"""`cmf diff`: in what two models differ, tensor by tensor, key by key."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import zip_longest

import numpy as np

from cmfio.codecs.registry import CODECS
from cmfio.header import TensorEntry
from cmfio.json_text import Json, spell_json
from cmfio.layout import TRAILING, Progress
from cmfio.reader import Container
from cmfio.tensor_list import shape_text

SHOWN = 60  # characters of a value


@dataclass(frozen=True)
class TensorDifference:
    """A tensor that isn't the same; `largest` and `relative` where values can be compared.

    `largest` is the largest difference of two values, `relative` the root mean square of
    the differences over that of A's values.
    """

    name: str
    what: str
    largest: float | None = None
    relative: float | None = None

    def to_text(self) -> str:
        """A line."""
        if self.largest is None:
            return f"{self.name}: {self.what}"
        return (
            f"{self.name}: {self.what}, values differ by up to {self.largest:.3g} "
            f"({self.relative:.2%} of A)"
        )


@dataclass(frozen=True)
class Difference:
    """All that differs between A and B; `header` has one text a key."""

    tensors: list[TensorDifference]
    header: dict[str, str]
    sections: list[str]
    same_tensors: int

    @property
    def is_empty(self) -> bool:
        """Whether the two hold the same."""
        return not (self.tensors or self.header or self.sections)

    def to_json(self) -> dict[str, Json]:
        """For a script."""
        return asdict(self)

    def to_lines(self) -> list[str]:
        """A line a difference."""
        lines = [f"header {key}: {text}" for key, text in self.header.items()]
        lines += [f"section {name}: differs" for name in self.sections]
        lines += [f"tensor {one.to_text()}" for one in self.tensors]
        lines.append(f"{self.same_tensors:,} tensors are the same, byte for byte")
        return lines


def compare(a: Container, b: Container, progress: Progress | None = None) -> Difference:
    """The differences of two open models, wherever their tensors lie. Reads all of both."""
    names = list(dict.fromkeys([*a.entries, *b.entries]))
    found = []
    for done, name in enumerate(names, start=1):
        found.append(_tensor_difference(a, b, name))
        if progress is not None:
            progress(done, len(names))
    different = [one for one in found if one is not None]
    return Difference(
        tensors=different,
        header=dict(_header_differences(a.header.to_json(), b.header.to_json())),
        sections=[name for name in TRAILING if _section(a, name) != _section(b, name)],
        same_tensors=len(names) - len(different),
    )


def _tensor_difference(a: Container, b: Container, name: str) -> TensorDifference | None:
    if name not in a.entries or name not in b.entries:
        return TensorDifference(name, "only in A" if name in a.entries else "only in B")
    one, other = a.entries[name], b.entries[name]
    if (one.dtype, one.shape, one.nbytes) == (other.dtype, other.shape, other.nbytes):
        # A checksum may agree by chance: the bytes themselves are compared.
        if all(x == y for x, y in zip_longest(a.chunks(name), b.chunks(name))):
            return None
        what = one.dtype
    else:
        what = f"{_kind(one)} → {_kind(other)}"
    if one.shape != other.shape or not {one.dtype, other.dtype} <= set(CODECS):
        return TensorDifference(name, what)
    largest, relative = _distance(a, b, name)
    return TensorDifference(name, what, largest, relative)


def _distance(a: Container, b: Container, name: str) -> tuple[float, float]:
    one, other = a.tensor(name).reshape(-1), b.tensor(name).reshape(-1)
    if not one.size:
        return 0.0, 0.0
    squares = float(np.dot(one, one))
    with np.errstate(all="ignore"):  # damaged files may hold anything
        np.subtract(other, one, out=other)
        largest = float(np.abs(other, out=one).max())
        apart = float(np.dot(other, other))
    relative = (apart / squares) ** 0.5 if squares else (0.0 if apart == 0 else np.inf)
    return largest, float(relative)


def _header_differences(
    a: Mapping[str, Json], b: Mapping[str, Json], prefix: str = ""
) -> Iterator[tuple[str, str]]:
    for key in dict.fromkeys([*a, *b]):
        path = f"{prefix}{key}"
        one, other = a.get(key), b.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _header_differences(one, other, path + ".")
        elif key not in a or key not in b:
            side, value = ("A", one) if key in a else ("B", other)
            yield path, f"only in {side}: {_short(value)}"
        elif spell_json(one) != spell_json(other):
            yield path, f"{_short(one)} → {_short(other)}"


def _section(container: Container, name: str) -> memoryview:
    return container.files[0].section(name)


def _kind(entry: TensorEntry) -> str:
    return f"{entry.dtype} {shape_text(entry.shape)}"


def _short(value: Json) -> str:
    text = spell_json(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
