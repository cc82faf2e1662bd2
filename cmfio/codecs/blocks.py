"""Work done in blocks that fit a core's cache, by one thread or several."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cmfio.codecs.base import BLOCK_ELEMENTS, F32, GROUP

# Works on groups first..last, given as an array [last - first, 32].
GroupWork = Callable[[int, int, F32], None]
BLOCK_GROUPS = BLOCK_ELEMENTS // GROUP


def block_height(row_elements: int) -> int:
    """How many rows of that many elements make a block; at least one."""
    return max(1, BLOCK_ELEMENTS // max(row_elements, 1))


def in_blocks(
    work: Callable[[int, int], None], rows: int, height: int, threads: int
) -> None:
    """Calls `work(top, bottom)` for all blocks of `height` rows, in no particular order.

    Blocks must not depend on each other: then the result is the same for any number of
    threads. Kernels give up the interpreter lock, so threads pay.
    """
    tops = range(0, rows, height)

    def run(top: int) -> None:
        # Overflow and the like are the codec's business, decided by the format. Threads
        # don't inherit numpy's settings, so they are made here.
        with np.errstate(all="ignore"):
            work(top, min(top + height, rows))

    if threads == 1 or len(tops) < 2:
        for top in tops:
            run(top)
        return
    with ThreadPoolExecutor(min(threads, len(tops))) as pool:
        for _ in pool.map(run, tops):
            pass


def pack_groups(values: F32, work: GroupWork, threads: int) -> None:
    """Shows `work` all values in groups of 32, the last one filled up with zeros."""
    whole, rest = _split(values)
    in_blocks(
        lambda first, last: work(first, last, whole[first:last]),
        len(whole),
        BLOCK_GROUPS,
        threads,
    )
    if rest.size:
        padded = np.zeros((1, GROUP), np.float32)
        padded[0, : rest.size] = rest
        padded.flags.writeable = False
        work(len(whole), len(whole) + 1, padded)


def unpack_groups(values: F32, work: GroupWork, threads: int) -> None:
    """Lets `work` fill all groups of 32 of `values`; a last one may run past the end."""
    whole, rest = _split(values)
    in_blocks(
        lambda first, last: work(first, last, whole[first:last]),
        len(whole),
        BLOCK_GROUPS,
        threads,
    )
    if rest.size:
        padded = np.empty((1, GROUP), np.float32)
        work(len(whole), len(whole) + 1, padded)
        rest[:] = padded[0, : rest.size]


def _split(values: F32) -> tuple[F32, F32]:
    flat = values.reshape(-1)
    end = flat.size - flat.size % GROUP
    return flat[:end].reshape(-1, GROUP), flat[end:]
