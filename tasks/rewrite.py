"""rewrite_model: the student with its draft replaced, everything else byte for byte."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from cmfio.arch import Mtp
from cmfio.atomic import replacing
from cmfio.errors import CmfIoError
from cmfio.header import Header
from cmfio.reader import open_container
from cmfio.rewrite import rewrite
from conf.schema import Settings
from store.artifact import Artifact
from store.manifest import Manifest
from store.space import free_bytes, size_text
from tasks.drafts import BEFORE_BLOCK, draft_bytes, read_draft_tensors
from tasks.errors import InputError
from tasks.model_file import DRAFT_PREFIX, MODEL_NAME, ModelPart
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


def _disk_bytes(settings: RewriteSettings, *, student: ModelPart, draft: Artifact) -> int:
    """The student's size, and the draft in f32 unless it is written as it was."""
    with open_container(student.path) as container:
        size = sum(file.path.stat().st_size for file in container.files)
        is_as_it_was = settings.codec == "keep" and container.header.arch.mtp is not None
    return size if is_as_it_was else size + draft_bytes(draft)


def _expected(
    settings: RewriteSettings,
    past: Manifest | None,
    *,
    student: ModelPart,
    draft: Artifact,
) -> Mapping[str, object]:
    """About the student's size: the draft is a small part of it."""
    return {} if is_pending(student) else {"bytes": student.path.stat().st_size}


@stage("rewrite_model", version=1, needs=_disk_bytes, expects=_expected)
def rewrite_model(
    out: Path,
    settings: RewriteSettings,
    runtime: Runtime,
    *,
    student: ModelPart,
    draft: Artifact,
) -> Mapping[str, object]:
    """`model.cmf`; numbers: bytes of the file and of its `model.mtp.*`."""
    replace = {
        name: tensor.numpy()
        for name, tensor in read_draft_tensors(draft).items()
        if settings.trained == "all" or not name.startswith(BEFORE_BLOCK)
    }
    target = out / MODEL_NAME
    said = None if settings.provenance is None else ("mtp_heal", settings.provenance)
    with open_container(student.path) as container:
        rewrite(
            container,
            target,
            replace,
            codec=settings.codec,
            provenance=said,
            header=with_draft(container.header),
        )
    with open_container(target) as written:
        entries = [e for n, e in written.entries.items() if n.startswith(DRAFT_PREFIX)]
    return {
        "bytes": target.stat().st_size,
        "draft_bytes": sum(entry.nbytes for entry in entries),
        "dtypes": sorted({entry.dtype for entry in entries}),
    }


def with_draft(header: Header) -> Header:
    """The header of a model with one MTP layer; head and embedding are the trunk's."""
    if header.arch.mtp is not None:
        return header
    return header.replace_arch(mtp=Mtp(num_layers=1, share_lm_head=True, share_embed=True))


def refuse_bad_outputs(outputs: Sequence[Path], inputs: Mapping[str, Path]) -> None:
    """InputError, before anything runs, if an output is an input, another, or a folder.

    Also through a link, hard or symbolic, and through `..`.
    """
    for place, path in enumerate(outputs):
        if path.is_dir():
            raise InputError(f"outputs: {path} is a folder; give the path of a file")
        for role, source in inputs.items():
            if _is_same(path, source):
                raise InputError(
                    f"outputs: {path} is the {role} {source}; inputs are never "
                    "overwritten, choose another path"
                )
        if any(_is_same(path, other) for other in outputs[:place]):
            raise InputError(f"outputs: {path} is named twice; give each file its own path")


def _is_same(path: Path, other: Path) -> bool:
    if path.resolve() == other.resolve():
        return True
    return path.exists() and other.exists() and path.samefile(other)


def publish(model: Path, target: Path) -> None:
    """Copies a result to the path a user asked for, whole or not at all.

    Waits for another run that is writing there. InputError if it cannot be written.
    """
    need, free = model.stat().st_size, free_bytes(target.parent)
    if need > free:
        raise _unwritable(
            target, f"it takes {size_text(need)}, {size_text(free)} are free there", model
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with model.open("rb") as source, replacing(target, waits=True) as copy:
            shutil.copyfileobj(source, copy, 1 << 24)
    except (OSError, CmfIoError) as error:
        system = error if isinstance(error, OSError) else error.__cause__
        why = getattr(system, "strerror", None) or str(error)
        raise _unwritable(target, why, model) from error


def _unwritable(target: Path, why: str, model: Path) -> InputError:
    return InputError(
        f"outputs: {target} could not be written ({why}); the result is kept in the store "
        f"as {model}: make room or choose another path, and run again"
    )
