"""rewrite_model: the student with its draft replaced, everything else byte for byte."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from cmfio.arch import Mtp
from cmfio.codecs.base import F32
from cmfio.header import HEAL, Header
from cmfio.models import AnyModel
from cmfio.reader import open_container
from cmfio.rewrite import rewrite
from conf.base import Settings
from store.manifest import Manifest
from tasks.drafts import BEFORE_BLOCK, DraftSource, draft_bytes, read_draft_tensors
from tasks.model_file import DRAFT_PREFIX, MODEL_NAME, ModelPart, open_part
from tasks.planning import is_pending
from tasks.stage import Runtime, stage


class RewriteSettings(Settings):
    """The codec (`keep`, a dtype or `profile:NAME`), what was trained, provenance.

    Only what was trained is written anew: with `block` enorm, hnorm and eh_proj stay as the
    student stores them, whatever the codec.
    """

    codec: str
    trained: Literal["block", "all"] = "all"
    provenance: dict[str, Any] | None = None  # JSON, written under `mtp_heal`


def _disk_bytes(
    settings: RewriteSettings, *, student: ModelPart, draft: DraftSource
) -> int:
    """The student's size, and the draft in f32 unless it is written as it was."""
    with open_part(student) as container:
        size = sum(path.stat().st_size for path in container.paths)
        is_as_it_was = settings.codec == "keep" and container.header.arch.mtp is not None
    return size if is_as_it_was else size + draft_bytes(draft)


def _expected(
    settings: RewriteSettings,
    past: Manifest | None,
    *,
    student: ModelPart,
    draft: DraftSource,
) -> Mapping[str, object]:
    """About the student's size: the draft is a small part of it."""
    if is_pending(student):
        return {}
    with open_part(student) as container:
        return {"bytes": sum(path.stat().st_size for path in container.paths)}


@stage("rewrite_model", version=1, needs=_disk_bytes, expects=_expected)
def rewrite_model(
    out: Path,
    settings: RewriteSettings,
    runtime: Runtime,
    *,
    student: ModelPart,
    draft: DraftSource,
) -> Mapping[str, object]:
    """`model.cmf`; numbers: bytes of the file and of its `model.mtp.*`."""
    target = out / MODEL_NAME
    said = None if settings.provenance is None else (HEAL, settings.provenance)
    with open_part(student) as container:
        rewrite(
            container,
            target,
            trained_values(settings, draft),
            codec=settings.codec,
            provenance=said,
            header=with_draft(container.header),
        )
    with open_container(target) as written:
        return {"bytes": target.stat().st_size, **draft_numbers(written)}


def draft_numbers(written: AnyModel) -> dict[str, object]:
    """Bytes and dtypes of a written model's `model.mtp.*`."""
    entries = [e for n, e in written.entries.items() if n.startswith(DRAFT_PREFIX)]
    return {
        "draft_bytes": sum(entry.nbytes for entry in entries),
        "dtypes": sorted({entry.dtype for entry in entries}),
    }


def trained_values(settings: RewriteSettings, draft: DraftSource) -> dict[str, F32]:
    """The tensors to write, by canonical name."""
    return {
        name: tensor.numpy()
        for name, tensor in read_draft_tensors(draft).items()
        if settings.trained == "all" or not name.startswith(BEFORE_BLOCK)
    }


def with_draft(header: Header) -> Header:
    """The header of a model with one MTP layer; head and embedding are the trunk's."""
    if header.arch.mtp is not None:
        return header
    return header.replace_arch(mtp=Mtp(num_layers=1, share_lm_head=True, share_embed=True))
