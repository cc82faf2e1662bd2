"""A projection whose two halves of columns change places, losslessly."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cmfio.copying import FileRange, read_range
from cmfio.dtypes import Shape
from cmfio.hash64 import Bytes
from cmfio.layout import Payload


def swapped_halves(data: Bytes, shape: Shape) -> memoryview:
    """The bytes of a matrix with its left and right half of columns in each other's place.

    For values of any width, one after the other. Done twice they are as before.
    """
    whole = np.frombuffer(data, np.uint8).reshape(shape[0], 2, -1)
    return memoryview(np.ascontiguousarray(whole[:, ::-1]).data).cast("B")


def swapped_payload(payload: Payload) -> Payload:
    """The same tensor with its halves swapped when its turn comes."""
    return replace(payload, data=_swapper(payload), hash64=None)


def _swapper(payload: Payload) -> Callable[[], Bytes]:
    def swapped() -> Bytes:
        data = payload.bytes_now()
        if isinstance(data, FileRange):
            data = read_range(data)
        return swapped_halves(data, payload.shape)

    return swapped
