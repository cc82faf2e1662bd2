"""Where a draft comes from: a model file's `model.mtp.*`, or the tensors a stage trained.

Also the stage `start_draft`: a fresh draft from a trunk's last layer (healing.md §3).
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from conf.base import Settings, Wiring
from nets.errors import TrainingError
from store.artifact import Artifact
from tasks.model_file import DRAFT_PREFIX, ModelPart, open_part, torch_dtype, weights_of
from tasks.packed import read_windows
from tasks.placed_trunk import placed_trunk
from tasks.stage import Runtime, stage
from tasks.tensor_file import write_tensors

if TYPE_CHECKING:
    import torch

    from nets.draft import Draft

DRAFT_NAME = "draft.safetensors"

BEFORE_BLOCK = tuple(DRAFT_PREFIX + part for part in ("enorm.", "hnorm.", "eh_proj."))

DraftSource = ModelPart | Artifact


def read_draft_tensors(source: DraftSource) -> dict[str, "torch.Tensor"]:
    """The draft's tensors by canonical name, f32."""
    if isinstance(source, Artifact):
        from safetensors.torch import load_file

        return load_file(source.path / DRAFT_NAME)
    with open_part(source) as container:
        read = weights_of(container).read
        return {n: read(n) for n in container.entries if n.startswith(DRAFT_PREFIX)}


def draft_bytes(source: DraftSource) -> int:
    """What a draft's tensors take as f32."""
    if isinstance(source, Artifact):
        return (source.path / DRAFT_NAME).stat().st_size
    with open_part(source) as container:
        return 4 * sum(
            math.prod(entry.shape)
            for name, entry in container.entries.items()
            if name.startswith(DRAFT_PREFIX)
        )


def write_draft_tensors(out: Path, tensors: Mapping[str, "torch.Tensor"]) -> None:
    """Writes a stage's draft, f32, as safetensors; TrainingError unless it is finite."""
    plain = {n: t.detach().float().contiguous().cpu() for n, t in tensors.items()}
    for name, tensor in plain.items():
        if not tensor.isfinite().all():
            raise TrainingError(
                f"draft tensor {name!r} holds a value that isn't finite: it is not saved; "
                "check the model it was made from"
            )
    write_tensors(out / DRAFT_NAME, plain)


def load_draft(
    trunk: ModelPart,
    source: DraftSource,
    init: DraftSource | None,
    wiring: Wiring,
    dtype: Literal["bf16", "f32"],
    runtime: Runtime,
) -> "Draft":
    """A draft ready to run, its trunk's embedding and head in `shared`; no layer is read.

    `init`, if given, replaces the draft's block and output norm, never what comes before.
    """
    from nets.draft import draft_from
    from nets.trunk import build_shared

    tensors = read_draft_tensors(source)
    if init is not None:
        tensors |= {
            n: t
            for n, t in read_draft_tensors(init).items()
            if not n.startswith(BEFORE_BLOCK)
        }
    with open_part(trunk) as container:
        weights = weights_of(container)
        arch = container.header.arch
        shared = build_shared(
            arch,
            weights.shapes,
            weights.read,
            device=runtime.device,
            dtype=torch_dtype(dtype),
        )
    return draft_from(tensors, shared, wiring)


class StartSettings(Settings):
    """How many windows the last layer's input is measured on, and in which compute type."""

    windows: int
    dtype: Literal["bf16", "f32"]


@stage("start_draft", version=2, on_device=True)
def start_draft(
    out: Path,
    settings: StartSettings,
    runtime: Runtime,
    *,
    trunk: ModelPart,
    windows: Artifact,
) -> Mapping[str, object]:
    """A fresh draft: the trunk's last layer behind neutral norms and scaled identities."""
    import torch

    from nets.draft import fresh_draft_tensors, last_input_rms

    packed = read_windows(windows)
    chosen = (packed.training or packed.held_out)[: settings.windows]
    ids = torch.from_numpy(packed.ids[chosen].astype("int64"))
    with placed_trunk(trunk, settings.dtype, ids.numel(), runtime) as placed:
        rms = last_input_rms(placed.trunk, ids)
    with open_part(trunk) as container:
        weights = weights_of(container)
        tensors = fresh_draft_tensors(
            container.header.arch, weights.shapes, weights.read, rms
        )
    write_draft_tensors(out, tensors)
    return {"input_rms": rms}
