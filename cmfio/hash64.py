"""The container's 64-bit checksum.

A checksum, never an identity: its XOR fold is blind to the order of words.
"""

import numpy as np
from numpy.typing import NDArray

Bytes = bytes | bytearray | memoryview

C1, C2, STRIDE = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
# 512 KiB of words: the handful of passes over a block stays in a core's own cache.
BLOCK_WORDS = 1 << 16
_STRIDES = np.arange(BLOCK_WORDS, dtype=np.uint64) * np.uint64(STRIDE)


class Hash64:
    """A running hash64 over bytes that arrive in pieces of any size."""

    def __init__(self) -> None:
        self._fold = 0
        self._words = 0
        self._tail = b""

    def update(self, data: Bytes) -> None:
        """Take the next bytes; keeps at most seven of them back."""
        view = memoryview(data).cast("B")
        if self._tail:
            need = min(8 - len(self._tail), len(view))
            self._tail += bytes(view[:need])
            view = view[need:]
            if len(self._tail) < 8:
                return
            self._fold_words(np.frombuffer(self._tail, "<u8"))
        whole = len(view) // 8 * 8
        words = np.frombuffer(view[:whole], "<u8")
        for start in range(0, len(words), BLOCK_WORDS):
            self._fold_words(words[start : start + BLOCK_WORDS])
        self._tail = bytes(view[whole:])

    def value(self) -> int:
        """The hash of everything so far; more may follow."""
        fold = self._fold
        if self._tail:
            last = int.from_bytes(self._tail, "little")
            fold ^= _mix(last) ^ (self._words * STRIDE & MASK)
        return _mix(fold ^ (self._words * 8 + len(self._tail)))

    def _fold_words(self, words: NDArray[np.uint64]) -> None:
        x = words ^ (words >> np.uint64(33))
        x *= np.uint64(C1)
        x ^= x >> np.uint64(33)
        x *= np.uint64(C2)
        x ^= x >> np.uint64(33)
        # Word i brings i·STRIDE; what precedes this block is one constant for all of it.
        x ^= _STRIDES[: len(x)] + np.uint64(self._words * STRIDE & MASK)
        self._fold ^= int(np.bitwise_xor.reduce(x))
        self._words += len(x)


def hash64(data: Bytes) -> int:
    """The checksum of all of `data`; 0 for nothing."""
    running = Hash64()
    running.update(data)
    return running.value()


def _mix(x: int) -> int:
    x ^= x >> 33
    x = x * C1 & MASK
    x ^= x >> 33
    x = x * C2 & MASK
    return x ^ x >> 33
