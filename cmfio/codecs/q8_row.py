"""q8_row: signed bytes, one f16 scale a row (cmf.md §7.2)."""

from typing import ClassVar

import numpy as np

from cmfio.codecs.base import F32
from cmfio.codecs.halves import F16_LIMIT, scale16, to_f16
from cmfio.dtypes import Shape, element_count

BLOCK_ELEMENTS = 1 << 16  # a block and its temporaries stay in the cache


class Q8Row:
    """Bytes: int8[R·C], then f16 scale[R]."""

    name: ClassVar[str] = "q8_row"
    limit: ClassVar[float] = 127 * F16_LIMIT

    def shape_problem(self, shape: Shape) -> str | None:
        """Only matrices have rows."""
        return None if len(shape) == 2 else "it needs 2 dimensions"

    def encode(self, values: F32) -> bytes:
        """Scale = |largest| / 127 as f16; steps rounded half to even."""
        rows, columns = values.shape
        steps = np.empty((rows, columns), np.int8)
        scales = np.empty(rows, np.float32)
        height = max(1, BLOCK_ELEMENTS // max(columns, 1))
        for top in range(0, rows, height):
            block = values[top : top + height]
            largest = np.abs(block).max(axis=1, initial=0)
            scale = scales[top : top + height] = scale16(largest / np.float32(127))
            scaled = np.rint(block / scale[:, None])
            steps[top : top + height] = np.clip(scaled, -128, 127)
        return steps.tobytes() + to_f16(scales).astype("<f2", copy=False).tobytes()

    def decode(self, payload: memoryview, shape: Shape) -> F32:
        """Step times the row's scale."""
        count = element_count(shape)
        steps = np.frombuffer(payload[:count], np.int8).reshape(shape)
        scales = np.frombuffer(payload[count:], "<f2").astype(np.float32)
        return np.multiply(steps, scales[:, None], dtype=np.float32)
