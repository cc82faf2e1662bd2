"""How long work takes on a device, what memory it needs at most, and what time is left."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch


@dataclass
class Clock:
    """A budget of seconds; what did not fit into it is noted."""

    limit_s: float
    notes: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return self.limit_s - (time.monotonic() - self.started)

    def allows(self, what: str, needs_s: float) -> bool:
        """Whether so many seconds are left; a note says if they are not."""
        left = self.left_s
        if left >= needs_s:
            return True
        self.notes.append(
            f"{what}: left out, it takes about {needs_s:.0f} s and {max(left, 0):.0f} s of "
            f"{self.limit_s:.0f} s were left"
        )
        return False


def seconds_of(work: Callable[[], object], device: str, rounds: int = 3) -> float:
    """The median time of a call, everything it started on the device included.

    One call before warms up, so allocations and kernels are there.
    """
    work()
    took = []
    for _ in range(rounds):
        wait_for(device)
        start = time.perf_counter()
        work()
        wait_for(device)
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def wait_for(device: str) -> None:
    """Return when the device has done all it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def forget_peak(device: str) -> None:
    """Give unused memory back and count the peak from here."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_bytes(device: str) -> int | None:
    """Bytes of tensors held at most since `forget_peak`; None where nobody counts them."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else None
