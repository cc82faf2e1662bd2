"""A copy of a model with some tensors replaced, all else byte for byte (cmf.md §14)."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from cmfio.atomic import refuse_same
from cmfio.codecs.base import F32, Codec
from cmfio.codecs.registry import CODECS, codec_named
from cmfio.dtypes import Shape
from cmfio.errors import NotEncodable, UnknownCodec, UnsupportedFeature
from cmfio.hash64 import Bytes
from cmfio.header import Arch, Header
from cmfio.json_text import Json
from cmfio.policy import KEEP, Request, parse_request, stored_codec
from cmfio.reader import Container
from cmfio.writer import Payload, write_container


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

    `keep` stores a replaced tensor in the dtype its entry has (a new one as f16). Any other
    word that `parse_request` knows is for replaced matrices; 1-D tensors keep their dtype.
    Shapes may differ. `header` stands in for the source's own. One file comes out, whatever
    the shards were.

    SameFile if `out` is the source; NotEncodable or UnknownCodec before anything is
    written; UnsupportedFeature for a sealed genome; DamagedTensor for a damaged copy.
    """
    refuse_same(out, (file.path for file in source.files))
    _refuse_genome(source)
    cleared = {"shard": None, "segments": ()}
    head = (header or source.header).model_copy(update=cleared)
    request = parse_request(codec)
    payloads = [
        _replaced(source, name, replace[name], request, head.arch)
        if name in replace
        else copy_tensor(source, name)
        for name in dict.fromkeys([*source.entries, *replace])
    ]
    if provenance is not None:
        head = head.with_provenance(*provenance)
    write_container(
        out, head, payloads, masks=source.masks, vocab=source.vocab, index=source.index
    )


def encode_tensor(name: str, values: F32, codec: str) -> Payload:
    """`values`, f32, to be stored by `codec`; NotEncodable names tensor and index.

    They are checked now and encoded when the file is written (don't change them between),
    or at once where their size decides the payload's.
    """
    _check_values(name, values, _codec_for(name, values.shape, codec))
    return encode_later(name, values.shape, codec, lambda: values)


def encode_later(name: str, shape: Shape, codec: str, make: Callable[[], F32]) -> Payload:
    """Like `encode_tensor` for values that `make` gives when the file is written.

    At once, too, if the codec's size depends on them: vbit, vbit_ro and q1s.
    """
    chosen = _codec_for(name, shape, codec)

    def encoded() -> Bytes:
        values = np.asarray(make(), np.float32, order="C")
        if values.shape != shape:
            raise NotEncodable(
                f"tensor {name!r}: shape {values.shape} came, {shape} announced"
            )
        _check_values(name, values, chosen)
        return chosen.encode(values)

    nbytes = chosen.nbytes(shape)
    if nbytes is None:
        data = encoded()
        return Payload(name, chosen.dtype, shape, data, len(data))
    return Payload(name, chosen.dtype, shape, encoded, nbytes)


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


def _replaced(
    source: Container, name: str, values: F32, request: Request, arch: Arch
) -> Payload:
    """A replaced or a new tensor, in the codec that is due to it."""
    entry = source.entries.get(name)
    if entry is None or (request.codec is not None and values.ndim > 1):
        return encode_tensor(name, values, stored_codec(name, values.shape, request, arch))
    if entry.dtype not in CODECS:
        raise UnknownCodec(
            f"{source.path}: tensor {name!r} is stored as {entry.dtype}, which holds no "
            f"weights, so it can't be kept; name a codec: {', '.join(CODECS)}"
        )
    return encode_tensor(name, values, entry.dtype)


def _codec_for(name: str, shape: Shape, dtype: str) -> Codec:
    codec = codec_named(dtype)
    problem = codec.shape_problem(shape)
    if problem is not None:
        raise NotEncodable(f"tensor {name!r} of shape {list(shape)} as {dtype}: {problem}")
    return codec


def _check_values(name: str, values: F32, codec: Codec) -> None:
    problem = codec.value_problem(values)
    if problem is None:
        return
    place = np.unravel_index(problem.place, values.shape) if values.ndim else ()
    index = [int(i) for i in place]
    raise NotEncodable(
        f"tensor {name!r} as {codec.name}: value {values[place]} at {index} is "
        f"{problem.why}"
    )


def _refuse_genome(source: Container) -> None:
    genome = source.header.genome
    if genome is not None:
        raise UnsupportedFeature(
            f"{source.path}: is a sealed genome ({genome.id}); each tensor outside skills, "
            "the draft too, is under its trunk_hash: a changed copy would open nowhere"
        )
