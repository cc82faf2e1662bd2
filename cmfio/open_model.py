"""What every open model has, whatever files it lies in: shapes, values, a `with`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cmfio.header import TensorEntry


class OpenModel(ABC):
    """An open model: a line for each tensor, their bytes and values. Use it in a `with`."""

    path: Path
    entries: Mapping[str, TensorEntry]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Each tensor's shape, in the directory's order."""
        return {name: entry.shape for name, entry in self.entries.items()}

    @abstractmethod
    def entry(self, name: str) -> TensorEntry:
        """The directory's line for `name`; MissingTensor if there is none."""

    @abstractmethod
    def payload(self, name: str) -> memoryview:
        """The stored bytes of a tensor, read-only."""

    @abstractmethod
    def forget(self, name: str) -> None:
        """Hand back the memory of a tensor's stored bytes; they can be read again."""

    @abstractmethod
    def close(self) -> None:
        """Let all files go."""

    def tensor(
        self, name: str, out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """The values of a tensor, f32, in `out` or a new array.

        UnknownCodec if its dtype holds none; BoundsError if its payload contradicts itself.
        """
        from cmfio.codecs.registry import decode_payload

        entry = self.entry(name)
        where = f"{self.path}: tensor {name!r}"
        values = decode_payload(self.payload(name), entry.dtype, entry.shape, where, out)
        self.forget(name)
        return values

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
