"""rewrite_model: the student with its draft replaced, everything else byte for byte."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cmfio.arch import Mtp
from cmfio.header import Header
from cmfio.reader import open_container
from cmfio.rewrite import rewrite
from conf.schema import Settings
from store.artifact import Artifact
from tasks.drafts import read_draft_tensors
from tasks.errors import InputError
from tasks.model_file import DRAFT_PREFIX, MODEL_NAME, ModelPart
from tasks.stage import Runtime, stage


class RewriteSettings(Settings):
    """The codec (`keep` or a dtype's name), which tensors, and what provenance says of the heal."""

    codec: str
    tensors: tuple[str, ...] | None = None
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
    tensors = read_draft_tensors(draft)
    chosen = (
        tensors if settings.tensors is None else {n: tensors[n] for n in settings.tensors}
    )
    target = out / MODEL_NAME
    said = None if settings.provenance is None else ("mtp_heal", settings.provenance)
    with open_container(student.path) as container:
        replace = {name: tensor.numpy() for name, tensor in chosen.items()}
        rewrite(
            container,
            target,
            replace,
            codec=settings.codec,
            provenance=said,
            header=with_draft(container.header),
        )
    with open_container(target) as written:
        draft_bytes = sum(
            e.nbytes for n, e in written.entries.items() if n.startswith(DRAFT_PREFIX)
        )
        dtypes = sorted(
            {e.dtype for n, e in written.entries.items() if n.startswith(DRAFT_PREFIX)}
        )
    return {"bytes": target.stat().st_size, "draft_bytes": draft_bytes, "dtypes": dtypes}


def with_draft(header: Header) -> Header:
    """The header of a model with one MTP layer, its head and embedding the trunk's."""
    if header.arch.mtp is not None:
        return header
    return header.replace_arch(mtp=Mtp(num_layers=1, share_lm_head=True, share_embed=True))


def refuse_bad_outputs(outputs: Mapping[Path, str], inputs: Mapping[str, Path]) -> None:
    """Checks, before anything runs, that no output is an input, also through a link."""
    for path, codec in outputs.items():
        for role, source in inputs.items():
            if path.resolve() == source.resolve() or (
                path.exists() and path.samefile(source)
            ):
                raise InputError(
                    f"outputs: {path} ({codec}) is the {role} {source}; inputs are never "
                    "overwritten, choose another path"
                )


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
        partial.unlink(missing_ok=True)
        raise InputError(
            f"outputs: {target} could not be written ({error.strerror}); the result is kept "
            f"in the store as {model}"
        ) from error
