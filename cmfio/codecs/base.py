"""What a codec is: values to bytes and back, for one dtype of the format."""

from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from cmfio.dtypes import Shape, dtype_named

F32 = NDArray[np.float32]


class Codec(Protocol):
    """One dtype, both ways; encoders and decoders are the peer's, bit for bit."""

    name: ClassVar[str]
    # Magnitudes from here on come back infinite or NaN: `encode_tensor` refuses them.
    limit: ClassVar[float]

    def shape_problem(self, shape: Shape) -> str | None:
        """Why a tensor of `shape` can't be stored this way; None if it can."""

    def encode(self, values: F32) -> bytes:
        """The payload of finite `values`, row-major."""

    def decode(self, payload: memoryview, shape: Shape) -> F32:
        """The values of a payload whose length was checked against `shape`."""


def payload_size(codec: Codec, shape: Shape) -> int:
    """Bytes a tensor of `shape` takes; only for shapes without a problem."""
    size = dtype_named(codec.name).nbytes(shape)
    assert size is not None
    return size
