"""`cmf convert`: some tensors decoded and encoded anew, all others copied as they are."""

from pathlib import Path

from cmfio.codecs.registry import CODECS
from cmfio.errors import UnsupportedFeature
from cmfio.header import Header, TensorEntry
from cmfio.policy import FLOATS, Request, parse_request, stored_codec
from cmfio.reader import Container
from cmfio.reencode import reencoded
from cmfio.rewrite import copy_tensor, refuse_rewrite, write_like
from cmfio.tensor_list import matching
from cmfio.writer import Output, Payload


def convert(
    source: Container,
    out: Path,
    codec: str,
    *,
    only: str | None = None,
    output: Output = Output(),  # noqa: B008 — frozen
) -> list[Path]:
    """The files written: `source` with the tensors that match `only` stored by `codec`.

    `codec` is any word a heal takes; 1-D tensors and whole numbers stay as they are, and
    `keep` copies everything. Without `only` the header's `quant_type` follows. Raises as
    `rewrite` does; UnsupportedFeature for matrices of which only the dtype tells what their
    values mean.
    """
    refuse_rewrite(source, out)
    request = parse_request(codec)
    chosen = {entry.name for entry in matching(source, only)}
    payloads = [
        _converted(source, entry, request, output)
        if name in chosen
        else copy_tensor(source, name)
        for name, entry in source.entries.items()
    ]
    header = source.header if only is not None else with_label(source.header, request)
    return write_like(source, out, payloads, header, output)


def target_codec(entry: TensorEntry, request: Request, header: Header) -> str | None:
    """The codec a stored tensor is due; None if it stays as it is."""
    is_weight = entry.dtype in CODECS and len(entry.shape) > 1
    if request.codec is None or not is_weight:
        return None
    codec = stored_codec(entry.name, entry.shape, request, header.arch)
    # Floats in their own dtype come out as they went in.
    return None if codec == entry.dtype and codec in FLOATS else codec


def with_label(header: Header, request: Request) -> Header:
    """The header with the `quant_type` that the converter gives such a model."""
    if request.codec is None:
        return header
    return header.model_copy(update={"quant_type": CODECS[request.codec].label})


def _converted(
    source: Container, entry: TensorEntry, request: Request, output: Output
) -> Payload:
    name = entry.name
    codec = target_codec(entry, request, source.header)
    if codec is None:
        return copy_tensor(source, name)
    prism = source.header.arch.prism_hadamard
    if prism is not None and prism.affine is not None and name in prism.affine.target_names:
        raise UnsupportedFeature(
            f"{source.path}: tensor {name!r} is affine q2tp (arch.prism_hadamard), which "
            "isn't decoded here; leave it out with --only"
        )
    return reencoded(source, entry, codec, output.threads)
