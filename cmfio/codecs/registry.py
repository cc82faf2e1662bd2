"""All codecs, by name. A new one is a file here, a line below, and its oracle."""

from collections.abc import Mapping

from cmfio.codecs.base import F32, Codec
from cmfio.codecs.floats import BFloat16, Float16, Float32
from cmfio.codecs.q1 import Q1, Q1Sparse
from cmfio.codecs.q1t import Q1Ternary, Q1TernaryExact
from cmfio.codecs.q4 import Q4Block, Q4Tiled
from cmfio.codecs.q8 import Q8Row, Q8TwoField
from cmfio.codecs.two_plane import Q2TwoPlane, Q4TwoPlane
from cmfio.codecs.vbit import Vbit
from cmfio.codecs.words import CARRIED, WORDS
from cmfio.dtypes import Shape, dtype_named
from cmfio.errors import BoundsError, UnknownCodec

_ALL: tuple[Codec, ...] = (
    Float32(),
    Float16(),
    BFloat16(),
    Q8Row(),
    Q8TwoField(),
    Q4Block(),
    Q4Tiled(),
    Q4TwoPlane(),
    Q2TwoPlane(),
    Vbit(),
    Vbit("vbit_ro", "vbit_ro", "vbit with a table of where rows begin", with_offsets=True),
    Q1(),
    Q1("q1p", what="q1 whose signs make up for those before them", diffuses=True),
    Q1Sparse(),
    Q1Ternary(),
    Q1Ternary("q1t_overlay", what="q1t, and the largest 1 % as they are", kept_share=0.01),
    Q1TernaryExact(),
)
# A dtype's own name is the codec that reads it, and the usual way to write it; the others
# (q1p, q1t_overlay, q1t_exact) are further ways to write one of the dtypes.
CODECS: Mapping[str, Codec] = {codec.name: codec for codec in _ALL}


def codec_named(name: str) -> Codec:
    """The codec of that name; UnknownCodec lists those there are."""
    try:
        return CODECS[name]
    except KeyError:
        raise UnknownCodec(f"no codec {name!r}; there are {', '.join(CODECS)}") from None


def decode_payload(
    payload: memoryview, dtype: str, shape: Shape, where: str, out: F32 | None = None
) -> F32:
    """The f32 values of a stored tensor; `where` begins the text of an error."""
    codec = CODECS.get(dtype)
    if codec is None:
        holds = "words" if dtype in WORDS else "bytes without a meaning"
        assert dtype in WORDS or dtype in CARRIED
        raise UnknownCodec(
            f"{where} is stored as {dtype}, {holds}, which can't be read as weights; those "
            f"that can are {', '.join(CODECS)}"
        )
    expected = dtype_named(dtype).nbytes(shape)
    is_wrong_size = expected not in (None, len(payload))
    if is_wrong_size or (codec.matrices_only and len(shape) != 2):
        raise UnknownCodec(f"{where}: {dtype} of shape {list(shape)} has no meaning")
    try:
        return codec.decode(payload, shape, out=out)
    except BoundsError as error:
        raise BoundsError(f"{where}: {error}") from error
