"""log2 and exp2 of halves as the peer's C library rounds them to f32.

glibc's f32 functions are not correctly rounded, and numpy's are others again. Computed in
f64 and rounded, all halves agree with glibc but these 21 and 42.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

# f16 bits of the argument: f32 bits of glibc's result.
# fmt: off
LOG2_OF_HALF = {
    0x361C: 0xBFB1C9F1, 0x3A5E: 0xBEA89FBF, 0x3B5F: 0xBDF1E994, 0x3BC9: 0xBD20DDC8,
    0x3BDD: 0xBCCBB91E, 0x3BDE: 0xBCC5DA7C, 0x3BDF: 0xBCBFFC99, 0x3BED: 0xBC5C502D,
    0x3BF6: 0xBBE76587, 0x3BFB: 0xBB671D0A, 0x3C07: 0x3C210835, 0x3C16: 0x3CFB39A6,
    0x3C19: 0x3D0E895C, 0x3C21: 0x3D3B6E7B, 0x3CA7: 0x3E5F304D, 0x3D16: 0x3EB16A40,
    0x3D9A: 0x3EF8BE9E, 0x3E12: 0x3F1A0DA7, 0x3E97: 0x3F3861EE, 0x3F18: 0x3F5398AE,
    0x421C: 0x3FCE360F,
}
EXP2_OF_HALF = {
    0x1BF5: 0x3F80585E, 0x21A6: 0x3F80FB89, 0x22D3: 0x3F813023, 0x2D80: 0x3F87DB36,
    0x3263: 0x3F92FDB9, 0x3352: 0x3F95FE6F, 0x3749: 0x3FAF7FD9, 0x3959: 0x3FCB708D,
    0x3C58: 0x4007DB36, 0x402C: 0x4087DB36, 0x422C: 0x4107DB36, 0x4416: 0x4187DB36,
    0x4516: 0x4207DB36, 0x4616: 0x4287DB36, 0x4716: 0x4307DB36, 0x480B: 0x4387DB36,
    0x488B: 0x4407DB36, 0x490B: 0x4487DB36, 0x498B: 0x4507DB36, 0x4A0B: 0x4587DB36,
    0x4A8B: 0x4607DB36, 0x4B0B: 0x4687DB36, 0x4B8B: 0x4707DB36, 0x9DF8: 0x3F7EF7C1,
    0x9F35: 0x3F7EC111, 0xB54E: 0x3F4B708D, 0xBB50: 0x3F07DB36, 0xBFA8: 0x3E87DB36,
    0xC1D4: 0x3E07DB36, 0xC3D4: 0x3D87DB36, 0xC4EA: 0x3D07DB36, 0xC5EA: 0x3C87DB36,
    0xC6EA: 0x3C07DB36, 0xC7EA: 0x3B87DB36, 0xC875: 0x3B07DB36, 0xC8F5: 0x3A87DB36,
    0xC975: 0x3A07DB36, 0xC9F5: 0x3987DB36, 0xCA75: 0x3907DB36, 0xCAF5: 0x3887DB36,
    0xCB75: 0x3807DB36, 0xCBF5: 0x3787DB36,
}
# fmt: on


@cache
def log2_of_half() -> F32:
    """log2 of each half that is not negative, by its bits."""
    halves = np.arange(1 << 15, dtype=np.uint16).view(np.float16)
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = np.log2(halves.astype(np.float64))
    return _excepted(exact, LOG2_OF_HALF)


@cache
def exp2_of_half() -> F32:
    """2^x of each half x, by its bits."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        exact = np.exp2(halves.astype(np.float64))
    return _excepted(exact, EXP2_OF_HALF)


def _excepted(exact: NDArray[np.float64], exceptions: dict[int, int]) -> F32:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        table = exact.astype(np.float32)
    table.view(np.uint32)[list(exceptions)] = list(exceptions.values())
    table.flags.writeable = False
    return table
