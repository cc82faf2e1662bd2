"""A copy of a model with some tensors replaced, all else byte for byte (cmf.md §14)."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cmfio.atomic import refuse_same
from cmfio.codecs.base import F32, Codec, payload_size
from cmfio.codecs.registry import CODECS, codec_named
from cmfio.dtypes import Shape
from cmfio.errors import NotEncodable, UnknownCodec, UnsupportedFeature
from cmfio.header import Header, TensorEntry
from cmfio.json_text import Json
from cmfio.policy import stored_dtype
from cmfio.reader import Container
from cmfio.writer import Payload, write_container

KEEP = "keep"


def rewrite(
    source: Container,
    out: Path,
    replace: Mapping[str, F32],
    *,
    codec: str = KEEP,
    provenance: tuple[str, Json] | None = None,
    header: Header | None = None,
) -> None:
    """Write `out`: the tensors of `source`, `replace`'s in their place, new ones behind.

    `keep` stores a replaced tensor in the dtype its entry has (a new one as f16); a codec's
    name applies to replaced matrices, 1-D tensors keep theirs. Shapes may differ.
    `header` stands in for the source's own. One file comes out, whatever the shards were.

    SameFile if `out` is the source; NotEncodable or UnknownCodec before anything is
    written; UnsupportedFeature for a sealed genome; DamagedTensor for a damaged copy.
    """
    refuse_same(out, (file.path for file in source.files))
    _refuse_genome(source)
    if codec != KEEP:
        codec_named(codec)
    payloads = [_payload(source, name, replace.get(name), codec) for name in source.entries]
    added = (name for name in replace if name not in source.entries)
    payloads += [
        encode_tensor(
            name, replace[name], _dtype(source, name, None, replace[name].shape, codec)
        )
        for name in added
    ]
    cleared = {"shard": None, "segments": ()}
    head = (header or source.header).model_copy(update=cleared)
    if provenance is not None:
        head = head.with_provenance(*provenance)
    write_container(
        out, head, payloads, masks=source.masks, vocab=source.vocab, index=source.index
    )


def encode_tensor(name: str, values: F32, dtype: str) -> Payload:
    """`values`, f32, to be stored as `dtype`; NotEncodable names tensor and index.

    They are checked now and encoded when the file is written: don't change them between.
    """
    _check_values(name, values, _codec_for(name, values.shape, dtype))
    return encode_later(name, values.shape, dtype, lambda: values)


def encode_later(name: str, shape: Shape, dtype: str, make: Callable[[], F32]) -> Payload:
    """Like `encode_tensor` for values that `make` gives when the file is written."""
    codec = _codec_for(name, shape, dtype)

    def encoded() -> bytes:
        values = np.ascontiguousarray(make(), np.float32)
        if values.shape != shape:
            raise NotEncodable(
                f"tensor {name!r}: shape {values.shape} came, {shape} announced"
            )
        _check_values(name, values, codec)
        # Underflow and the like are the codec's business, decided by the format.
        with np.errstate(all="ignore"):
            return codec.encode(values)

    return Payload(name, dtype, shape, encoded, payload_size(codec, shape))


def copy_tensor(source: Container, name: str, new_name: str | None = None) -> Payload:
    """A tensor of `source` as stored, its hash checked on the way; keep `source` open."""
    entry = source.entry(name)
    return Payload(
        new_name or name,
        entry.dtype,
        entry.shape,
        lambda: source.payload(name),
        entry.nbytes,
        entry.hash64,
    )


def _payload(source: Container, name: str, values: F32 | None, codec: str) -> Payload:
    if values is None:
        return copy_tensor(source, name)
    dtype = _dtype(source, name, source.entries[name], values.shape, codec)
    return encode_tensor(name, values, dtype)


def _dtype(
    source: Container, name: str, entry: TensorEntry | None, shape: Shape, codec: str
) -> str:
    if entry is None:
        return stored_dtype(name, shape, "f16" if codec == KEEP else codec)
    if codec != KEEP and len(shape) > 1:
        return stored_dtype(name, shape, codec)
    if entry.dtype not in CODECS:
        raise UnknownCodec(
            f"{source.path}: tensor {name!r} is stored as {entry.dtype}, which can't be "
            f"written yet, so it can't be kept; name a codec: {', '.join(CODECS)}"
        )
    return entry.dtype


def _codec_for(name: str, shape: Shape, dtype: str) -> Codec:
    codec = codec_named(dtype)
    problem = codec.shape_problem(shape)
    if problem is not None:
        raise NotEncodable(f"tensor {name!r} of shape {list(shape)} as {dtype}: {problem}")
    return codec


def _check_values(name: str, values: NDArray[np.float32], codec: Codec) -> None:
    # NaN compares false, so it is found together with what is too large.
    fine = np.abs(values) < codec.limit
    if fine.all():
        return
    place = np.unravel_index(int(np.argmin(fine)), values.shape) if values.ndim else ()
    index = [int(i) for i in place]
    value = values[place]
    why = "too large for it" if np.isfinite(value) else "not finite"
    raise NotEncodable(
        f"tensor {name!r} as {codec.name}: value {value} at {index} is {why}"
    )


def _refuse_genome(source: Container) -> None:
    genome = source.header.genome
    if genome is not None:
        raise UnsupportedFeature(
            f"{source.path}: is a sealed genome ({genome.id}); each tensor outside skills, "
            "the draft too, is under its trunk_hash: a changed copy would open nowhere"
        )
