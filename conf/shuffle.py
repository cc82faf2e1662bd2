"""The reference's order: 64-bit xorshift, Fisher–Yates from the end (healing.md §4)."""

from collections.abc import MutableSequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

SEED = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


@dataclass
class Xorshift64:
    """Marsaglia's xorshift with shifts 13, 7, 17; `state` alone restores it."""

    state: int = SEED

    def draw(self) -> int:
        """The next number, 0 < r < 2**64."""
        r = self.state
        r ^= (r << 13) & MASK
        r ^= r >> 7
        r ^= (r << 17) & MASK
        self.state = r
        return r


def shuffle_in_place(items: MutableSequence[T], generator: Xorshift64) -> None:
    """Fisher–Yates from the end, one draw a place; the generator runs on."""
    for i in range(len(items) - 1, 0, -1):
        j = generator.draw() % (i + 1)
        items[i], items[j] = items[j], items[i]
