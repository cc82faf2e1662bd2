"""u8, u32 and u64: whole numbers, not weights; what else is only carried."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cmfio.dtypes import Shape
from cmfio.hash64 import Bytes

Unsigned = NDArray[np.uint8] | NDArray[np.uint32] | NDArray[np.uint64]
# Reserved by the format, without a meaning: their bytes are copied, never read.
CARRIED = ("mix8_4", "q4_col")


@dataclass(frozen=True)
class Words:
    """Little-endian words of one size; any shape."""

    name: str
    numpy_dtype: str

    def encode(self, words: Unsigned) -> Bytes:
        """The payload of an array of exactly this type."""
        assert words.dtype == np.dtype(self.numpy_dtype)
        return words.astype(self.numpy_dtype, copy=False).tobytes()

    def decode(self, payload: Bytes, shape: Shape) -> Unsigned:
        """A copy, so that it outlives the container."""
        return np.frombuffer(payload, self.numpy_dtype).reshape(shape).copy()


WORDS: Mapping[str, Words] = {
    words.name: words
    for words in (Words("u8", "u1"), Words("u32", "<u4"), Words("u64", "<u8"))
}
