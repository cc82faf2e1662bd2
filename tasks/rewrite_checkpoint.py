"""rewrite_checkpoint: a Hugging Face student's files that change, and none of the others.

The patch is laid over the student's folder to be measured, and copied with it to be
published: a model is never stored twice.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cmfio.hf_checkpoint import Checkpoint, open_hf
from cmfio.hf_patch import audit, source_names, write_patch
from store.artifact import Artifact
from store.manifest import Manifest
from tasks.drafts import DraftSource, draft_bytes
from tasks.model_file import (
    DRAFT_PREFIX,
    DraftFacts,
    ModelFile,
    ModelPart,
    checkpoint_tensors,
    open_model,
    open_part,
)
from tasks.planning import is_pending
from tasks.rewrite import RewriteSettings, draft_numbers, trained_values
from tasks.seen import refuse_changed
from tasks.stage import Runtime, stage

PATCH = "patch"


def _disk_bytes(
    settings: RewriteSettings, *, student: ModelPart, draft: DraftSource
) -> int:
    """The files that hold the draft, or all that a new one could take; it as f32."""
    with open_hf(student.path) as checkpoint:
        own = {
            checkpoint.stored(name).path
            for name in checkpoint.entries
            if name.startswith(DRAFT_PREFIX)
        }
        files = own or set(checkpoint.weight_files[:1])
        return sum(path.stat().st_size for path in files) + draft_bytes(draft)


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
    with open_hf(student.path) as checkpoint:
        return {"bytes": _weight_bytes(checkpoint)}


@stage("rewrite_checkpoint", version=1, needs=_disk_bytes, expects=_expected)
def rewrite_checkpoint(
    out: Path,
    settings: RewriteSettings,
    runtime: Runtime,
    *,
    student: ModelPart,
    draft: DraftSource,
) -> Mapping[str, object]:
    """`patch/`: weight files with the draft in them, mtp_heal.json, what else changes.

    Numbers: bytes of all weight files, of the draft, its dtypes, and which MTP layer it is.
    """
    values = trained_values(settings, draft)
    with open_part(student) as before:
        assert isinstance(before, Checkpoint), "a container has a stage of its own"
        write_patch(before, out / PATCH, values, settings.codec, settings.provenance)
        with open_hf(student.path, out / PATCH) as after:
            digests = (
                checkpoint_tensors(before, runtime),
                checkpoint_tensors(after, runtime),
            )
            audit(before, after, digests, source_names(before, values))
            return _numbers(after)


def _numbers(after: Checkpoint) -> Mapping[str, object]:
    assert after.head is not None, "one was just written"
    return {
        "bytes": _weight_bytes(after),
        **draft_numbers(after),
        "healed": after.head.healed,
        "kept": list(after.head.kept),
    }


def _weight_bytes(checkpoint: Checkpoint) -> int:
    return sum(path.stat().st_size for path in checkpoint.weight_files)


def healed_checkpoint(student: ModelFile, patch: Artifact, runtime: Runtime) -> ModelFile:
    """The student with a patch over it; in a plan the patch may have yet to be written."""
    if not is_pending(patch):
        healed = open_model(student.path, runtime, patch.path / PATCH)
        refuse_changed(student.seen, healed.seen)
        return healed
    marker = patch.content_digest
    digests = replace(student.digests, draft=f"{marker}:draft", content=marker)
    head = student.head or DraftFacts("new", "")
    return replace(student, digests=digests, head=head)
