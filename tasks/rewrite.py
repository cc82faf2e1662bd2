"""rewrite_model: the student with its draft replaced, everything else byte for byte."""

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from cmfio.arch import Mtp
from cmfio.header import Header
from cmfio.reader import open_container
from cmfio.rewrite import rewrite
from conf.schema import Settings
from store.artifact import Artifact
from tasks.drafts import BEFORE_BLOCK, read_draft_tensors
from tasks.errors import InputError
from tasks.model_file import DRAFT_PREFIX, MODEL_NAME, ModelPart
from tasks.stage import Runtime, stage


class RewriteSettings(Settings):
    """The codec (`keep` or a dtype's name), what was trained, what provenance says of it.

    Only what was trained is written anew: with `block` enorm, hnorm and eh_proj stay as the
    student stores them, whatever the codec.
    """

    codec: str
    trained: Literal["block", "all"] = "all"
    provenance: dict[str, Any] | None = None  # JSON, written under `mtp_heal`


@stage("rewrite_model", version=1)
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
    """Copies a result to the path a user asked for: beside it first, then renamed."""
    partial = target.with_name(f".{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with model.open("rb") as source, partial.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 24)
            copy.flush()
            os.fsync(copy.fileno())
        partial.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise InputError(
            f"outputs: {target} could not be written ({error.strerror}); the result is "
            f"kept in the store as {model}"
        ) from error
