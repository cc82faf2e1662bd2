"""Compiled loops. Only `*_kernels.py` import this, and they are imported when first needed.

numba takes half a second to import: `cmf info`, and a rewrite that only copies, do without.

What makes these loops as fast as memory, and is easily lost: the innermost one runs over
slices, up to a slice's own length. A literal 32 is unrolled before LLVM looks for vectors,
and an index in two dimensions hides that the places lie side by side; either costs half.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, compiled at its first call and remembered on disk, without the GIL.

    Never `parallel=True`: numba's OpenMP layer then sets torch's threads. A kernel may call
    only kernels of its own file: the copy on disk is known to be stale by its file alone.
    numba keeps it in `__pycache__`, or in the user's cache folder where that is read-only;
    where neither can be written to, every process compiles anew.
    """
    options = {"nogil": True, "error_model": "numpy"}
    try:
        compiled = njit(cache=True, **options)(function)
    except RuntimeError:
        compiled = njit(**options)(function)
    return cast(Callable[P, R], compiled)
