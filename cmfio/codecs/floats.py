"""f32, f16 and bf16: any shape. numpy alone: most runs need no kernel."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cmfio.codecs.base import F32, U8, Codec
from cmfio.codecs.blocks import in_blocks
from cmfio.codecs.halves import F16_LIMIT, from_f16, to_f16
from cmfio.dtypes import Label

BLOCK = 1 << 15  # a dozen passes over a block: it should stay in the nearest cache
# Half a step above the largest bf16: what lies there rounds to infinity.
BF16_LIMIT = float.fromhex("0x1.ffp127")


@dataclass(frozen=True)
class Float32(Codec):
    """The values themselves."""

    label: ClassVar[Label] = "F32"

    name: str = "f32"
    dtype: str = "f32"
    what: str = "the values themselves"
    limit: float = float("inf")

    def planes(self, columns: int) -> tuple[int, ...]:
        """The values."""
        return (4 * columns,)

    def packed(self, values: F32, threads: int) -> U8:
        """Little-endian f32; the values' own memory where it is that already."""
        return values.astype("<f4", copy=False).reshape(-1).view(np.uint8)

    def unpack(self, payload: U8, values: F32, threads: int) -> None:
        """A copy, so that it outlives the container."""
        np.copyto(values, payload.view("<f4").reshape(values.shape))


@dataclass(frozen=True)
class Float16(Codec):
    """IEEE halves, rounded as the peer does: see `to_f16` for the one difference."""

    label: ClassVar[Label] = "F16"

    name: str = "f16"
    dtype: str = "f16"
    what: str = "IEEE halves"
    limit: float = F16_LIMIT

    def planes(self, columns: int) -> tuple[int, ...]:
        """The halves."""
        return (2 * columns,)

    def packed(self, values: F32, threads: int) -> U8:
        """Two bytes a value."""
        return _words(values, to_f16, threads)

    def unpack(self, payload: U8, values: F32, threads: int) -> None:
        """Exact."""
        halves, flat = payload.view("<f2"), values.reshape(-1)

        def work(first: int, last: int) -> None:
            from_f16(halves[first:last], flat[first:last])

        in_blocks(work, flat.size, BLOCK, threads)


@dataclass(frozen=True)
class BFloat16(Codec):
    """The upper half of an f32, rounded to nearest even; the peer has no encoder."""

    label: ClassVar[Label] = "BF16"

    name: str = "bf16"
    dtype: str = "bf16"
    what: str = "the upper half of an f32"
    limit: float = BF16_LIMIT

    def planes(self, columns: int) -> tuple[int, ...]:
        """The upper halves."""
        return (2 * columns,)

    def packed(self, values: F32, threads: int) -> U8:
        """Two bytes a value."""
        return _words(values, _to_bf16, threads)

    def unpack(self, payload: U8, values: F32, threads: int) -> None:
        """Exact."""
        words, flat = payload.view("<u2"), values.reshape(-1).view(np.uint32)

        def work(first: int, last: int) -> None:
            np.left_shift(words[first:last], 16, out=flat[first:last], dtype=np.uint32)

        in_blocks(work, flat.size, BLOCK, threads)


def _words(values: F32, convert: Callable[[F32], NDArray[np.generic]], threads: int) -> U8:
    flat = values.reshape(-1)
    words = np.empty(flat.size, "<u2")

    def work(first: int, last: int) -> None:
        words[first:last] = convert(flat[first:last]).view(np.uint16)

    in_blocks(work, flat.size, BLOCK, threads)
    return words.view(np.uint8)


def _to_bf16(values: F32) -> NDArray[np.uint16]:
    bits = values.view(np.uint32)
    last_kept = bits >> np.uint32(16) & np.uint32(1)
    rounded = (bits + (last_kept + np.uint32(0x7FFF))) >> np.uint32(16)
    return rounded.astype(np.uint16)
