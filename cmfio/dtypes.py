"""The format's dtypes: ids, names and how many bytes a shape takes."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cmfio.errors import UnknownDtype

Shape = tuple[int, ...]
# What a header may say of its model as `quant_type`: the format's list, closed.
Label: TypeAlias = Literal["Q8_ROW", "Q4_BLOCK", "Q8_2F", "VBIT", "BF16", "F16", "F32"]
# Larger than any file, small enough for the signed sizes of numpy.
MAX_ELEMENTS = 1 << 62


@dataclass(frozen=True)
class Dtype:
    """`nbytes(shape)` is None where the format fixes no size; `least` then bounds it.

    `tiled`: only 2-D with columns in whole groups of 32; the peer doesn't check that.
    """

    id: int
    name: str
    nbytes: Callable[[Shape], int | None]
    tiled: bool = False
    least: Callable[[Shape], int] = lambda _shape: 0


def element_count(shape: Shape) -> int:
    """How many elements; 1 for a scalar."""
    return math.prod(shape)


def is_tiled(shape: Shape) -> bool:
    """2-D, columns in whole groups of 32."""
    return len(shape) == 2 and shape[1] % 32 == 0


def _words(width: int) -> Callable[[Shape], int]:
    return lambda shape: width * element_count(shape)


def _groups(width: int) -> Callable[[Shape], int]:
    return lambda shape: width * -(-element_count(shape) // 32)


def _undefined(_shape: Shape) -> None:
    return None


def _q8_row(shape: Shape) -> int | None:
    return element_count(shape) + 2 * shape[0] if shape else None


def _q8_2f(shape: Shape) -> int | None:
    rows = _q8_row(shape)
    return None if rows is None else rows + 2 * (element_count(shape) // max(shape[0], 1))


def _two_plane(group_bytes: int) -> Callable[[Shape], int | None]:
    def nbytes(shape: Shape) -> int | None:
        if not is_tiled(shape):
            return None
        rows, groups = shape[0], shape[1] // 32
        return rows * (groups * group_bytes + 4 + -(-5 * groups // 8))

    return nbytes


def _q1s_least(shape: Shape) -> int:
    return 6 * -(-element_count(shape) // 32) + 4


def _q1t_least(shape: Shape) -> int:
    return 9 * -(-element_count(shape) // 32) + 4 * (shape[0] + 1)


# Ids are the peer's and one byte in the directory: a new one is its to give.
_TABLE = (
    Dtype(0, "f32", _words(4)),
    Dtype(1, "f16", _words(2)),
    Dtype(2, "bf16", _words(2)),
    Dtype(3, "q8_row", _q8_row),
    Dtype(4, "q4_block", _groups(18)),
    Dtype(5, "mix8_4", _undefined),
    Dtype(6, "u8", _words(1)),
    Dtype(7, "q4_col", _undefined),
    Dtype(8, "vbit", _undefined),
    Dtype(9, "q8_2f", _q8_2f),
    Dtype(10, "vbit_ro", _undefined),
    Dtype(11, "q4_tiled", _groups(18)),
    Dtype(12, "q1", _groups(6)),
    Dtype(13, "q1s", _undefined, tiled=True, least=_q1s_least),
    Dtype(14, "q1t", _undefined, tiled=True, least=_q1t_least),
    Dtype(15, "q4tp", _two_plane(16), tiled=True),
    Dtype(16, "q2tp", _two_plane(8), tiled=True),
    Dtype(17, "u32", _words(4)),
    Dtype(18, "u64", _words(8)),
)
BY_ID: Mapping[int, Dtype] = {dtype.id: dtype for dtype in _TABLE}
BY_NAME: Mapping[str, Dtype] = {dtype.name: dtype for dtype in _TABLE}


def dtype_named(name: str) -> Dtype:
    """The dtype called `name`; UnknownDtype lists the others."""
    try:
        return BY_NAME[name]
    except KeyError:
        raise UnknownDtype(f"no dtype {name!r}; there are {', '.join(BY_NAME)}") from None
