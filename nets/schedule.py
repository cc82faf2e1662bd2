"""When a training step reads which batch, and at what learning rate (healing.md §8)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from conf.shuffle import MASK, SEED, Xorshift64, shuffle_in_place

# Odd, so that no two seeds give one state (the multiplier of splitmix64).
SEED_SPREAD = 0xBF58476D1CE4E5B9


def learning_rate(step: int, steps: int, peak: float) -> float:
    """The rate of step 1…steps: linear up over the first tenth, then cosine to a tenth."""
    warm = max(steps // 10, 1)
    if step <= warm:
        return peak * step / warm
    progress = min((step - warm) / max(steps - warm, 1), 1.0)
    return peak * (0.1 + 0.9 * 0.5 * (1.0 + math.cos(math.pi * progress)))


def cut_batches(windows: Sequence[int], batch: int) -> list[tuple[int, ...]]:
    """Neighbouring windows in batches, the same in every epoch; the rest is dropped."""
    whole = len(windows) // batch * batch
    return [tuple(windows[i : i + batch]) for i in range(0, whole, batch)]


def job_generator(seed: int) -> Xorshift64:
    """The generator of the job order; seed 0 is the reference's."""
    return Xorshift64((SEED ^ (seed * SEED_SPREAD)) & MASK or SEED)


@dataclass
class JobOrder:
    """Endless passes over jobs 0…n-1, the list shuffled in place before each.

    `order`, `place` and `generator.state` restore it.
    """

    order: list[int]
    generator: Xorshift64 = field(default_factory=Xorshift64)
    place: int = 0

    def draw(self) -> int:
        """The next job."""
        if self.place == 0:
            shuffle_in_place(self.order, self.generator)
        job = self.order[self.place]
        self.place = (self.place + 1) % len(self.order)
        return job
