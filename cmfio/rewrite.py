"""A copy of a model with some tensors replaced, all else byte for byte."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from cmfio.atomic import check_output
from cmfio.codecs.base import F32, Codec
from cmfio.codecs.registry import CODECS, codec_named
from cmfio.dtypes import Shape
from cmfio.errors import NotEncodable, UnknownCodec, UnsupportedFeature
from cmfio.hash64 import Bytes
from cmfio.header import Arch, Header
from cmfio.json_text import Json
from cmfio.layout import Payload
from cmfio.models import AnyModel
from cmfio.policy import KEEP, Request, parse_request, stored_codec
from cmfio.reader import Container
from cmfio.verify import check_sections
from cmfio.writer import Output, write_model


def rewrite(  # noqa: PLR0913 — what changes, and how it is written
    source: AnyModel,
    out: Path,
    replace: Mapping[str, F32],
    *,
    codec: str = KEEP,
    provenance: tuple[str, Json] | None = None,
    header: Header | None = None,
    output: Output = Output(),  # noqa: B008 — frozen
) -> list[Path]:
    """The files written: `source`'s tensors, `replace`'s in their place, new ones behind.

    `keep` stores a replaced tensor in the dtype its entry has (a new one as f16). Any other
    word that `parse_request` knows is for replaced matrices; 1-D tensors keep their dtype.
    Shapes may differ. `header` stands in for the source's own. `out` is one file, whatever
    the shards were, unless `output` cuts it.

    SameFile if `out` is the source; NotEncodable or UnknownCodec before anything is
    written; UnsupportedFeature for a sealed genome; DamagedTensor for a damaged copy.
    """
    refuse_rewrite(source, out)
    head = header or source.header
    request = parse_request(codec)
    payloads = [
        _replaced(source, name, replace[name], (request, head.arch, output.threads))
        if name in replace
        else copy_tensor(source, name)
        for name in dict.fromkeys([*source.entries, *replace])
    ]
    if provenance is not None:
        head = head.with_provenance(*provenance)
    return write_like(source, out, payloads, head, output)


def write_like(
    source: AnyModel,
    out: Path,
    payloads: Sequence[Payload],
    header: Header,
    output: Output,
) -> list[Path]:
    """The files written: these payloads, with the masks, vocab and index of `source`.

    What `header` says of where things lie in the source is dropped. DamagedTensor if a
    section of a container doesn't have its recorded hash.
    """
    if isinstance(source, Container):
        check_sections(source)
    head = header.model_copy(update={"shard": None, "segments": ()})
    found = {"masks": source.masks, "vocab": source.vocab, "index": source.index}
    sections = {name: data for name, data in found.items() if data is not None}
    return write_model(out, head, payloads, sections, output, source.paths)


def refuse_rewrite(source: AnyModel, out: Path) -> None:
    """Raise, before any work, if `out` is the source, or the source a sealed genome."""
    check_output(out, source.paths)
    genome = source.header.genome
    if genome is not None:
        raise UnsupportedFeature(
            f"{source.path}: is a sealed genome ({genome.id}); each tensor outside skills, "
            "the draft too, is under its trunk_hash: a changed copy would open nowhere"
        )


def encode_tensor(name: str, values: F32, codec: str, *, threads: int = 1) -> Payload:
    """`values`, f32, to be stored by `codec`; NotEncodable names tensor and index.

    They are checked now and encoded when the file is written; don't change them between.
    """
    check_values(name, values, _codec_for(name, values.shape, codec))
    return encode_later(name, values.shape, codec, lambda: values, threads=threads)


def encode_later(
    name: str, shape: Shape, codec: str, make: Callable[[], F32], *, threads: int = 1
) -> Payload:
    """Like `encode_tensor` for values that `make` gives when the file is written."""
    chosen = _codec_for(name, shape, codec)

    def encoded() -> Bytes:
        values = np.asarray(make(), np.float32, order="C")
        if values.shape != shape:
            raise NotEncodable(
                f"tensor {name!r}: shape {values.shape} came, {shape} announced"
            )
        check_values(name, values, chosen)
        return chosen.encode(values, threads=threads)

    return Payload(name, chosen.dtype, shape, encoded, chosen.nbytes(shape))


def copy_tensor(source: AnyModel, name: str, new_name: str | None = None) -> Payload:
    """A tensor of `source` as stored; keep `source` open. A container's hash is checked."""
    entry = source.entry(name)
    named = new_name or name
    if isinstance(source, Container):
        where, known = source.stored(name), entry.hash64
        return Payload(named, entry.dtype, entry.shape, where, entry.nbytes, known)
    return Payload(named, entry.dtype, entry.shape, source.data(name), entry.nbytes)


def _replaced(
    source: AnyModel, name: str, values: F32, wanted: tuple[Request, Arch, int]
) -> Payload:
    """A replaced or a new tensor, in the codec that is due to it."""
    request, arch, threads = wanted
    entry = source.entries.get(name)
    if entry is None or (request.codec is not None and values.ndim > 1):
        codec = stored_codec(name, values.shape, request, arch)
    elif entry.dtype in CODECS:
        codec = entry.dtype
    else:
        raise UnknownCodec(
            f"{source.path}: tensor {name!r} is stored as {entry.dtype}, which holds no "
            f"weights, so it can't be kept; name a codec: {', '.join(CODECS)}"
        )
    return encode_tensor(name, values, codec, threads=threads)


def _codec_for(name: str, shape: Shape, dtype: str) -> Codec:
    codec = codec_named(dtype)
    problem = codec.shape_problem(shape)
    if problem is not None:
        raise NotEncodable(f"tensor {name!r} of shape {list(shape)} as {dtype}: {problem}")
    return codec


def check_values(name: str, values: F32, codec: Codec, top: int = 0) -> None:
    """Raise NotEncodable, naming tensor and index, if `codec` can't hold one of `values`.

    `top` is the first row's number where `values` are some rows only.
    """
    problem = codec.value_problem(values)
    if problem is None:
        return
    place = np.unravel_index(problem.place, values.shape) if values.ndim else ()
    index = [int(i) for i in place]
    value = values[place]
    if index:
        index[0] += top
    raise NotEncodable(
        f"tensor {name!r} as {codec.name}: value {value} at {index} is {problem.why}"
    )
