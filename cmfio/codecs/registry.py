"""The codecs, by the name of their dtype. A new one is a file here and a line below."""

from collections.abc import Mapping

import numpy as np

from cmfio.codecs.base import F32, Codec
from cmfio.codecs.floats import BFloat16, Float16, Float32
from cmfio.codecs.q4_tiled import Q4Tiled
from cmfio.codecs.q8_row import Q8Row
from cmfio.dtypes import Shape, dtype_named
from cmfio.errors import UnknownCodec

_ALL: tuple[Codec, ...] = (Float32(), Float16(), BFloat16(), Q8Row(), Q4Tiled())
CODECS: Mapping[str, Codec] = {codec.name: codec for codec in _ALL}
MATRICES_ONLY = frozenset({"q8_row"})


def codec_named(name: str) -> Codec:
    """The codec of that name; UnknownCodec lists those there are."""
    try:
        return CODECS[name]
    except KeyError:
        raise UnknownCodec(f"no codec {name!r}; there are {', '.join(CODECS)}") from None


def decode_payload(payload: memoryview, dtype: str, shape: Shape, where: str) -> F32:
    """The f32 values of a stored tensor; `where` begins the text of an error."""
    codec = CODECS.get(dtype)
    if codec is None:
        raise UnknownCodec(
            f"{where} is stored as {dtype}, which can't be read as numbers here; "
            f"there are {', '.join(CODECS)}"
        )
    is_matrix = len(shape) == 2
    fits = dtype_named(dtype).nbytes(shape) == len(payload)
    if not fits or (dtype in MATRICES_ONLY and not is_matrix):
        raise UnknownCodec(f"{where}: {dtype} of shape {list(shape)} has no meaning")
    # A scale that overflowed in the file gives infinities and NaN, as in the peer.
    with np.errstate(invalid="ignore", over="ignore"):
        return codec.decode(payload, shape)
