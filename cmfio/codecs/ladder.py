"""The 32 scales of a row of q4tp and q2tp, a geometric ladder."""

import numpy as np
from numpy.typing import NDArray

from cmfio.codecs.halves import from_f16, scale16, scale_halves, to_f16
from cmfio.codecs.libm import exp2_of_half, log2_of_half

F32 = NDArray[np.float32]
F16 = NDArray[np.float16]

RUNGS = 32
MAX_BUMPS = 64


def log2_scales(largest: F32, top_level: float) -> F32:
    """log2 of the scale, as f16, that puts `largest` on `top_level`."""
    halves = scale_halves(scale16(largest / np.float32(top_level)))
    return np.take(log2_of_half(), halves.view(np.uint16))


def range_of_rows(log2_RG: F32, alive_RG: NDArray[np.bool_]) -> tuple[F32, F32]:
    """Least and greatest of each row's live groups; in a row without any, -14 twice."""
    some = alive_RG.any(axis=1)
    lowest = np.where(alive_RG, log2_RG, np.inf).min(axis=1, initial=np.inf)
    highest = np.where(alive_RG, log2_RG, -np.inf).max(axis=1, initial=-np.inf)
    # A dead group's own: the scale's floor, 2^-14.
    floor = np.float32(-14)
    return np.where(some, lowest, floor), np.where(some, highest, floor)


def steps_to(top: F32, lowest: F32, steps: int) -> F16:
    """The least step, as f16 from to_f16 up, with which `steps` of them reach `top`.

    Never 0. `lowest` is where they begin, already rounded to f16.
    """
    span = np.maximum(top - lowest, np.float32(0))
    bits = to_f16(span / np.float32(steps)).view(np.uint16)
    for _ in range(MAX_BUMPS):
        step = from_f16(bits.view(np.float16))
        fine = (step > 0) & (lowest + np.float32(steps) * step >= top)
        if fine.all():
            break
        bits += ~fine
    return bits.view(np.float16)


def rungs(lowest: F16, step: F16) -> F32:
    """The ladders [rows, 32]: 2^lowest, and each rung 2^step times the one below.

    Repeated multiplication in f32 is the definition, not 2^(lowest + i·step).
    """
    first = exp2_of_half()[lowest.view(np.uint16)]
    ratio = exp2_of_half()[step.view(np.uint16)]
    ladder = np.empty((len(ratio), RUNGS), np.float32)
    ladder[:, 1:] = ratio[:, None]
    ladder[:, 0] = first
    np.multiply.accumulate(ladder, axis=1, out=ladder)
    return ladder


def nominal_steps(log2_RG: F32, lowest_R: F32, step_R: F32, steps: int) -> F32:
    """How many steps up the ladder each group's scale is, rounded half to even."""
    ideal = np.rint((log2_RG - lowest_R[:, None]) / step_R[:, None])
    nearest: F32 = np.clip(ideal, np.float32(0), np.float32(steps))
    return nearest
