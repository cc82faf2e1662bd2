"""q4_block and q4_tiled: groups of 32 as nibbles and a f16 scale."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cmfio.codecs.base import F32, GROUP, U8, Codec, TiledCodec
from cmfio.codecs.blocks import pack_groups, unpack_groups
from cmfio.codecs.halves import F16_LIMIT, from_f16, scale16, scale_halves
from cmfio.dtypes import Label

NIBBLE_BYTES = GROUP // 2
TILE_BYTES = 2 + NIBBLE_BYTES


@dataclass(frozen=True)
class Records:
    """Views of a payload, a row a group; a row of `nibbles` begins at byte `first`."""

    nibbles: U8
    first: int
    scales: NDArray[np.float16]


@dataclass(frozen=True)
class Q4(Codec):
    """What both layouts have in common: the values."""

    label: ClassVar[Label] = "Q4_BLOCK"

    limit: float = 7 * F16_LIMIT

    @abstractmethod
    def records(self, payload: U8) -> Records:
        """Where the nibbles and scales are."""

    def packed(self, values: F32, threads: int) -> U8:
        """Scale = |largest| / 7 as f16; steps rounded half to even into -8..7."""
        from cmfio.codecs.group_kernels import largest_magnitudes
        from cmfio.codecs.q4_kernels import pack_nibbles

        payload = np.empty(-(-values.size // GROUP) * TILE_BYTES, np.uint8)
        records = self.records(payload)

        def work(first: int, last: int, groups: F32) -> None:
            largest = np.empty(last - first, np.float32)
            largest_magnitudes(groups, largest)
            scale = scale16(largest / np.float32(7))
            records.scales[first:last] = scale_halves(scale)
            pack_nibbles(groups, scale, records.nibbles[first:last], records.first)

        pack_groups(values, work, threads)
        return payload

    def unpack(self, payload: U8, values: F32, threads: int) -> None:
        """(nibble - 8) times the group's scale; a last group may run past the tensor."""
        from cmfio.codecs.q4_kernels import unpack_nibbles

        records = self.records(payload)

        def work(first: int, last: int, groups: F32) -> None:
            scale = from_f16(records.scales[first:last])
            unpack_nibbles(records.nibbles[first:last], records.first, scale, groups)

        unpack_groups(values, work, threads)


@dataclass(frozen=True)
class Q4Block(Q4):
    """Nibbles of all groups | all scales; any shape, flat, its last group filled up."""

    name: str = "q4_block"
    dtype: str = "q4_block"
    what: str = "4 bits, a scale for 32 weights, all scales behind"

    def planes(self, columns: int) -> tuple[int, ...] | None:
        """Nibbles and scales; groups run on from row to row unless a row is whole ones."""
        groups, rest = divmod(columns, GROUP)
        return None if rest else (groups * NIBBLE_BYTES, groups * 2)

    def records(self, payload: U8) -> Records:
        """Two planes."""
        count = len(payload) // TILE_BYTES
        nibbles = payload[: count * NIBBLE_BYTES].reshape(count, NIBBLE_BYTES)
        return Records(nibbles, 0, payload[count * NIBBLE_BYTES :].view("<f2"))


@dataclass(frozen=True)
class Q4Tiled(TiledCodec, Q4):
    """One group after the other: its scale, then its nibbles."""

    matrices_only = False  # written as such, but read whatever the shape

    name: str = "q4_tiled"
    dtype: str = "q4_tiled"
    what: str = "4 bits, a scale for 32 weights before them"
    limit: float = 7 * F16_LIMIT

    def planes(self, columns: int) -> tuple[int, ...] | None:
        """The tiles."""
        groups, rest = divmod(columns, GROUP)
        return None if rest else (groups * TILE_BYTES,)

    def records(self, payload: U8) -> Records:
        """One plane of tiles."""
        tiles = payload.reshape(-1, TILE_BYTES)
        return Records(tiles, 2, tiles[:, :2].view("<f2")[:, 0])
