"""q4_tiled: groups of 32 values in 18 bytes, a f16 scale and 32 nibbles (cmf.md §7.5)."""

from typing import ClassVar

import numpy as np

from cmfio.codecs.base import F32
from cmfio.codecs.halves import F16_LIMIT, scale16, to_f16
from cmfio.dtypes import Shape, element_count

GROUP = 32
TILE = np.dtype([("scale", "<f2"), ("nibbles", np.uint8, (GROUP // 2,))])
BLOCK_GROUPS = 1 << 11  # a block and its temporaries stay in the cache


class Q4Tiled:
    """Byte k of a tile holds elements 2k (low nibble) and 2k + 1 (high), each plus 8."""

    name: ClassVar[str] = "q4_tiled"
    limit: ClassVar[float] = 7 * F16_LIMIT

    def shape_problem(self, shape: Shape) -> str | None:
        """A group must not straddle two rows."""
        if len(shape) != 2:
            return "it needs 2 dimensions"
        return f"its columns must come in groups of {GROUP}" if shape[1] % GROUP else None

    def encode(self, values: F32) -> bytes:
        """Scale = |largest| / 7 as f16; steps rounded half to even into -8..7."""
        groups = values.reshape(-1, GROUP)
        tiles = np.empty(len(groups), TILE)
        for first in range(0, len(groups), BLOCK_GROUPS):
            block = groups[first : first + BLOCK_GROUPS]
            scale = scale16(np.abs(block).max(axis=1, initial=0) / np.float32(7))
            steps = np.clip(np.rint(block / scale[:, None]), -8, 7).astype(np.int8) + 8
            nibbles = steps.astype(np.uint8)
            part = tiles[first : first + BLOCK_GROUPS]
            part["scale"] = to_f16(scale)
            part["nibbles"] = nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)
        return tiles.tobytes()

    def decode(self, payload: memoryview, shape: Shape) -> F32:
        """(nibble - 8) times the group's scale; a last group may run past the tensor."""
        tiles = np.frombuffer(payload, TILE)
        values = np.empty((len(tiles), GROUP), np.float32)
        for first in range(0, len(tiles), BLOCK_GROUPS):
            part = tiles[first : first + BLOCK_GROUPS]
            block = values[first : first + BLOCK_GROUPS]
            scale = part["scale"].astype(np.float32)[:, None]
            nibbles = part["nibbles"]
            np.multiply((nibbles & 15).astype(np.int8) - 8, scale, out=block[:, 0::2])
            np.multiply((nibbles >> 4).astype(np.int8) - 8, scale, out=block[:, 1::2])
        return values.reshape(-1)[: element_count(shape)].reshape(shape)
