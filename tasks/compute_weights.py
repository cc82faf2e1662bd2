"""A model's tensors straight in the compute type, a block of rows in f32 at a time.

A 4-bit matrix is decoded to bf16 without ever being held in f32, and rows of an embedding
are read without the rest of it where its codec allows that. Safe on a thread beside the
one that computes: nothing here starts torch's threads.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cmfio.codecs.rows import decode_rows, decodes_by_rows
from cmfio.models import AnyModel

BLOCK_ELEMENTS = 1 << 19  # 2 MB of f32 stay in a core's cache until they are rounded
# torch shares out what has more elements; a second team of its threads would fight the
# first for the cores.
MOST_ALONE = (1 << 15) - 1


@dataclass(frozen=True)
class ComputeWeights:
    """Tensors of an open container: matrices in the compute type, the rest in f32.

    `read(name)` gives a whole one, `read_rows(name, ids)` some rows of a matrix [n, …].
    """

    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[[str], Tensor]
    read_rows: Callable[[str, Tensor], Tensor]


def compute_weights(container: AnyModel, dtype: torch.dtype) -> ComputeWeights:
    """The tensors of an open container; good until it is closed."""
    source = _Source(container, dtype)
    return ComputeWeights(container.shapes, source.read, source.read_rows)


@dataclass(frozen=True)
class _Source:
    container: AnyModel
    dtype: torch.dtype

    def read(self, name: str) -> Tensor:
        """A tensor's values; a vector's in f32, since some vectors must not be rounded."""
        entry = self.container.entry(name)
        if self.dtype == torch.float32 or len(entry.shape) < 2:
            values = torch.empty(entry.shape)
            self.container.tensor(name, values.numpy())
            return values
        if (entry.dtype, self.dtype) == ("bf16", torch.bfloat16):
            return self._copied(name)
        if not decodes_by_rows(entry.dtype, entry.shape):
            return _rounded(torch.from_numpy(self.container.tensor(name)), self.dtype)
        rounded = torch.empty(entry.shape, dtype=self.dtype)
        height = max(1, BLOCK_ELEMENTS // max(1, entry.shape[1]))
        for top in range(0, entry.shape[0], height):
            part = range(top, min(top + height, entry.shape[0]))
            _copy(self._rows(name, part), rounded[part.start : part.stop])
            self.container.forget(name)
        return rounded

    def read_rows(self, name: str, ids: Tensor) -> Tensor:
        """The rows `ids` (ascending) of a matrix, in that order."""
        entry = self.container.entry(name)
        if not decodes_by_rows(entry.dtype, entry.shape):
            return self.read(name)[ids]
        rows = torch.empty((len(ids), *entry.shape[1:]), dtype=self.dtype)
        for row, number in zip(rows, ids.tolist(), strict=True):
            _copy(self._rows(name, range(number, number + 1))[0], row)
        self.container.forget(name)
        return rows

    def _copied(self, name: str) -> Tensor:
        """A bf16 tensor's bits as they are."""
        bits = torch.empty(self.container.entry(name).shape, dtype=torch.uint16)
        stored = np.frombuffer(self.container.payload(name), "<u2")
        np.copyto(bits.view(-1).numpy(), stored)
        self.container.forget(name)
        return bits.view(torch.bfloat16)

    def _rows(self, name: str, rows: range) -> Tensor:
        entry = self.container.entry(name)
        payload = self.container.payload(name)
        return torch.from_numpy(decode_rows(payload, entry.dtype, entry.shape, rows))


def _rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    rounded = torch.empty(values.shape, dtype=dtype)
    _copy(values, rounded)
    return rounded


def _copy(values: Tensor, out: Tensor) -> None:
    """Rounds `values` into `out` on this thread alone."""
    flat, place = values.view(-1), out.view(-1)
    for start in range(0, len(flat), MOST_ALONE):
        place[start : start + MOST_ALONE].copy_(flat[start : start + MOST_ALONE])
