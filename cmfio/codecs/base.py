"""What a codec is: values to bytes and back, one way to store a tensor."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cmfio.dtypes import Label, Shape, dtype_named, is_tiled
from cmfio.errors import BoundsError
from cmfio.hash64 import Bytes

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]

GROUP = 32  # values that share a scale, in the codecs that have groups
BLOCK_ELEMENTS = 1 << 19  # 2 MB of f32: in a cache, and large against the cost of a call


@dataclass(frozen=True)
class ValueProblem:
    """A value that can't be stored: its place, counted row-major, and why."""

    place: int
    why: str


@dataclass(frozen=True)
class Codec(ABC):
    """A value without state; `registry.py` lists them all.

    Bytes and values are the peer's, bit for bit, for any number of `threads`. `name` is the
    encoder's, mostly that of the `dtype` it writes. Magnitudes from `limit` on may come
    back infinite or NaN. `what` is a line for people. What follows from the kind of codec
    stands on the class: `label`, a model's `quant_type`; whether payloads have a meaning
    for matrices only; whether a row is encoded without a look at the others.
    """

    label: ClassVar[Label] = "VBIT"  # the peer's word for all that has none of its own
    matrices_only: ClassVar[bool] = False
    encodes_rows_alone: ClassVar[bool] = True

    name: str
    dtype: str
    what: str
    limit: float

    def shape_problem(self, shape: Shape) -> str | None:
        """Why a tensor of `shape` can't be stored this way; None if it can."""
        return None

    def value_problem(self, values: F32) -> ValueProblem | None:
        """The first of `values` that can't be stored this way; None if all can."""
        return first_beyond(values, self.limit)

    def nbytes(self, shape: Shape) -> int | None:
        """Bytes a tensor of `shape` takes; None where that depends on its values."""
        return dtype_named(self.dtype).nbytes(shape)

    def usual_nbytes(self, shape: Shape) -> int:
        """Bytes a tensor of `shape` takes, about, where that depends on its values."""
        known = self.nbytes(shape)
        assert known is not None, f"{self.name} has to say what it usually takes"
        return known

    def planes(self, columns: int) -> tuple[int, ...] | None:
        """Bytes a row of so many columns takes in each plane of a matrix's payload.

        A payload is planes, one behind another (of q8_row first all rows' weights, then
        their scales), and what all rows share. With these some rows can be read by
        themselves. None if they can't, or if no row begins where a byte does.
        """
        return None

    def encode(self, values: F32, *, threads: int = 1) -> Bytes:
        """The payload of `values` that have no problem."""
        rows = np.asarray(values, np.float32, order="C").view()
        # Kernels are compiled once more for arrays that may be written to.
        rows.flags.writeable = False
        return self.packed(rows, threads).data.toreadonly()

    def decode(
        self, payload: Bytes, shape: Shape, *, out: F32 | None = None, threads: int = 1
    ) -> F32:
        """The values of a payload, in `out` or in a new array.

        BoundsError unless its length, and tables inside it, fit the shape.
        """
        self._check_length(len(payload), shape)
        values = np.empty(shape, np.float32) if out is None else out
        assert values.shape == shape
        assert values.dtype == np.float32
        assert values.flags.c_contiguous
        data = np.frombuffer(memoryview(payload).toreadonly(), np.uint8)
        self.unpack(data, values, threads)
        return values

    def new_payload(self, shape: Shape) -> U8:
        """Bytes for a payload whose size the shape tells."""
        size = self.nbytes(shape)
        assert size is not None
        return np.empty(size, np.uint8)

    def _check_length(self, length: int, shape: Shape) -> None:
        dtype = dtype_named(self.dtype)
        least, exact = dtype.least(shape), dtype.nbytes(shape)
        if length < least or exact not in (None, length):
            raise BoundsError(
                f"{self.dtype} of shape {list(shape)} takes {exact or least:,} bytes, not "
                f"{length:,}"
            )

    @abstractmethod
    def packed(self, values: F32, threads: int) -> U8:
        """`encode` of a contiguous array."""

    @abstractmethod
    def unpack(self, payload: U8, values: F32, threads: int) -> None:
        """`decode` into a contiguous array."""


class MatrixCodec(Codec):
    """A codec that needs rows."""

    matrices_only = True

    def shape_problem(self, shape: Shape) -> str | None:
        """Two dimensions."""
        return None if len(shape) == 2 else "it needs 2 dimensions"


class TiledCodec(Codec):
    """A codec whose groups of 32 must not straddle two rows."""

    matrices_only = True

    def shape_problem(self, shape: Shape) -> str | None:
        """Two dimensions, columns in whole groups."""
        if is_tiled(shape):
            return None
        return "it needs 2 dimensions and columns in groups of 32"


def first_beyond(values: F32, limit: float) -> ValueProblem | None:
    """The first value that is NaN or has a magnitude from `limit` on."""
    flat = values.reshape(-1)
    for start in range(0, flat.size, BLOCK_ELEMENTS):
        block = flat[start : start + BLOCK_ELEMENTS]
        # NaN compares false, so it is found together with what is too large.
        if block.max() < limit and block.min() > -limit:
            continue
        place = int(np.argmin(np.abs(block) < limit))
        why = "too large for it" if np.isfinite(block[place]) else "not finite"
        return ValueProblem(start + place, why)
    return None
