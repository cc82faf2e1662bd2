"""f32, f16 and bf16: any shape (cmf.md §7.1)."""

from typing import ClassVar

import numpy as np

from cmfio.codecs.base import F32
from cmfio.codecs.halves import F16_LIMIT, to_f16
from cmfio.dtypes import Shape


class Float32:
    """The values themselves."""

    name: ClassVar[str] = "f32"
    limit: ClassVar[float] = float("inf")

    def shape_problem(self, shape: Shape) -> str | None:
        """Any shape will do."""

    def encode(self, values: F32) -> bytes:
        """Little-endian f32."""
        return values.astype("<f4", copy=False).tobytes()

    def decode(self, payload: memoryview, shape: Shape) -> F32:
        """A copy, so that it outlives the container."""
        return np.frombuffer(payload, "<f4").reshape(shape).astype(np.float32)


class Float16:
    """IEEE halves, rounded as the peer does."""

    name: ClassVar[str] = "f16"
    limit: ClassVar[float] = F16_LIMIT

    def shape_problem(self, shape: Shape) -> str | None:
        """Any shape will do."""

    def encode(self, values: F32) -> bytes:
        """See `to_f16` for the one place where it isn't IEEE's rounding."""
        return to_f16(values).astype("<f2", copy=False).tobytes()

    def decode(self, payload: memoryview, shape: Shape) -> F32:
        """Exact."""
        return np.frombuffer(payload, "<f2").reshape(shape).astype(np.float32)


class BFloat16:
    """The upper half of an f32, rounded to nearest even."""

    name: ClassVar[str] = "bf16"
    # Half a step above the largest bf16: what lies there rounds to infinity.
    limit: ClassVar[float] = float.fromhex("0x1.ffp127")

    def shape_problem(self, shape: Shape) -> str | None:
        """Any shape will do."""

    def encode(self, values: F32) -> bytes:
        """The peer has no encoder; its fixtures round to nearest even, and so do we."""
        bits = values.view(np.uint32)
        last_kept = (bits >> np.uint32(16)) & np.uint32(1)
        rounded = (bits + (last_kept + np.uint32(0x7FFF))) >> np.uint32(16)
        return rounded.astype("<u2").tobytes()

    def decode(self, payload: memoryview, shape: Shape) -> F32:
        """Exact."""
        bits = np.frombuffer(payload, "<u2").astype(np.uint32) << np.uint32(16)
        return bits.view(np.float32).reshape(shape)
