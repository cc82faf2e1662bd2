"""dump_chain: what a draft did before and after training, for models built elsewhere.

All windows, all rows, every chain step (healing.md §9), with the tensors a draft reads.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from conf.base import Settings, Wiring
from store.arrays import WindowArray, create_array
from store.artifact import Artifact
from store.atomic import whole_file
from store.keys import canonical_json
from store.manifest import Manifest
from tasks.drafts import DraftSource, load_draft
from tasks.dump_readme import README
from tasks.errors import InputError
from tasks.model_file import DRAFT_PREFIX, ModelPart, open_part
from tasks.packed import Packed, read_windows
from tasks.stage import Runtime, stage
from tasks.tensor_file import write_tensors
from tasks.trunk_rows import TrunkRows, read_rows

if TYPE_CHECKING:
    import torch

    from nets.draft import Draft
    from nets.dump import DumpedStep

BEST = 4
TENSORS_NAME, META_NAME, README_NAME = "tensors.safetensors", "meta.json", "README.md"
F16_MOST = float(np.finfo(np.float16).max)
MATRICES = ("embed", "head", "eh_proj")


class DumpSettings(Settings):
    """Layout, depth and wiring of the chains, and the compute type."""

    layout: Literal["exact", "rows"]
    depth: int
    wiring: Wiring
    dtype: Literal["bf16", "f32"]


def _disk_bytes(
    settings: DumpSettings,
    *,
    windows: Artifact,
    rows: Artifact,
    trunk: ModelPart,
    trained: Artifact | None,
    **_: object,
) -> int:
    with open_part(trunk) as model:
        arch = model.header.arch
    width = int(windows.manifest.settings["window"])
    places = int(windows.numbers["windows"]) * width
    topk, sides = int(rows.manifest.settings["topk"]), 1 if trained is None else 2
    a_side = settings.depth * (2 * arch.hidden_size + 8 * BEST)
    tensors = 4 * arch.hidden_size * (arch.vocab_size + 2 * arch.hidden_size)
    return places * (sides * a_side + 8 * topk + 4) + tensors


def _expected(
    settings: DumpSettings, past: Manifest | None, *, windows: Artifact, **_: object
) -> Mapping[str, object]:
    return {"windows": windows.numbers["windows"], "depth": settings.depth}


@stage("dump_chain", version=2, needs=_disk_bytes, expects=_expected, on_device=True)
def dump_chain(  # noqa: PLR0913 — a stage's inputs, each with a digest of its own
    out: Path,
    settings: DumpSettings,
    runtime: Runtime,
    *,
    windows: Artifact,
    rows: Artifact,
    trunk: ModelPart,
    draft: DraftSource,
    init: DraftSource | None,
    trained: Artifact | None,
) -> Mapping[str, object]:
    """Zarr arrays, `tensors.safetensors`, `meta.json`, and a README that explains them."""
    packed, trunk_rows = read_windows(windows), read_rows(rows, runtime)
    _save_fixed(out, packed, trunk_rows)
    before = load_draft(trunk, draft, init, settings.wiring, settings.dtype, runtime)
    sides = {"before": before}
    if trained is not None:
        sides["after"] = load_draft(
            trunk, trained, None, settings.wiring, settings.dtype, runtime
        )
    _save_tensors(out, sides)
    for side, of_side in sides.items():
        _dump_side(out, side, of_side, packed, trunk_rows, settings, runtime)
    meta = _meta(settings, windows, rows, before, packed, list(sides))
    for name, text in ((META_NAME, canonical_json(meta)), (README_NAME, README.encode())):
        with whole_file(out / name) as beside:
            beside.write_bytes(text)
    return {"windows": len(packed.length), "depth": settings.depth, "sides": list(sides)}


def _save_fixed(out: Path, packed: Packed, rows: TrunkRows) -> None:
    """`len`, `held_out`, `set` [W], `ids` [W, T], `ti` and `tp` [W, T, K]."""
    count, width = packed.ids.shape
    create_array(out, "len", (count,), "u4", "packed")[:] = packed.length.astype("u4")
    create_array(out, "set", (count,), "u4", "packed")[:] = packed.set_index.astype("u4")
    create_array(out, "held_out", (count,), "bool", "packed")[:] = packed.is_held_out
    create_array(out, "ids", (count, width), "u4", "packed")[:] = packed.ids
    shape = (count, *rows.read("topk_id", 0).shape)
    ti = create_array(out, "ti", shape, "u4", "packed")
    tp = create_array(out, "tp", shape, "f4", "packed")
    for window in range(count):
        ti[window] = rows.read("topk_id", window).astype("u4")
        tp[window] = rows.read("topk_p", window).astype("f4")


def _save_tensors(out: Path, sides: Mapping[str, "Draft"]) -> None:
    """Embedding, head, `norm`, and of each side what is before and behind its block."""
    import torch

    shared = sides["before"].shared
    found = {
        "embed": shared.embed_VH,
        "head": shared.head_VH,
        "norm": shared.final_norm.state_dict()["weight"],
    }
    for side, draft in sides.items():
        own = draft.tensors()
        for name in ("eh_proj", "enorm", "hnorm", "norm"):
            tensor = own.get(f"{DRAFT_PREFIX}{name}.weight")
            if tensor is not None:
                shown = "mtp_norm" if name == "norm" else name
                found[shown if side == "before" else f"{side}.{shown}"] = tensor
    as_kept: dict[str, torch.Tensor] = {
        name: tensor.detach()
        .to(
            "cpu",
            torch.float16 if name.split(".")[-1] in MATRICES else torch.float32,
            copy=True,
        )
        .contiguous()
        for name, tensor in found.items()
    }
    write_tensors(out / TENSORS_NAME, as_kept)


def _dump_side(  # noqa: PLR0913, PLR0917 — what is dumped, and how
    out: Path,
    side: str,
    draft: "Draft",
    packed: Packed,
    rows: TrunkRows,
    settings: DumpSettings,
    runtime: Runtime,
) -> None:
    """`SIDE_output` [W, C, T, H] f16, `SIDE_top_id` and `SIDE_top_p` [W, C, T, 4]."""
    from nets.dump import dump_steps
    from nets.source import read_batch
    from tasks.row_source import RowSource, measure_compute

    (total, width), depth = packed.ids.shape, settings.depth
    arch = draft.shared.arch
    best = min(BEST, arch.vocab_size)
    lead = (total, depth, width)
    output = create_array(out, f"{side}_output", (*lead, arch.hidden_size), "f2", "raw")
    top_id = create_array(out, f"{side}_top_id", (*lead, best), "u4", "packed")
    top_p = create_array(out, f"{side}_top_p", (*lead, best), "f4", "packed")
    source = RowSource(packed, rows)
    compute = measure_compute(packed, settings.dtype, runtime)
    with (
        runtime.stop.heeded(),
        runtime.progress.task(f"dumping chains {side}", total=total, unit="windows") as bar,
    ):
        for start in range(0, total, compute.batch):
            runtime.stop.check(f"after {start} of {total} windows, begun anew next time")
            chosen = range(start, min(start + compute.batch, total))
            batch = read_batch(source, chosen, draft.shared.head_VH.device)
            steps = list(dump_steps(draft, batch, settings.layout, depth, compute))
            _refuse_large(steps, chosen, side)
            for place, window in enumerate(chosen):
                _put(output, window, [s.output_BTH[place].half() for s in steps])
                _put(top_id, window, [s.top_id_BTK[place] for s in steps])
                _put(top_p, window, [s.top_p_BTK[place] for s in steps])
            bar.advance(len(chosen))


def _put(array: WindowArray, window: int, steps: "Sequence[torch.Tensor]") -> None:
    array[window] = np.stack([step.numpy() for step in steps]).astype(array.dtype)


def _refuse_large(steps: "Sequence[DumpedStep]", windows: Sequence[int], side: str) -> None:
    """InputError for a row that f16 cannot hold."""
    for step in steps:
        most_B = step.output_BTH.abs().amax((1, 2)).tolist()
        for window, most in zip(windows, most_B, strict=True):
            if not most <= F16_MOST:
                raise InputError(
                    f"dump: {side} training, step {step.step} of window {window} gives "
                    f"{most:,.0f}, f16 ends at {F16_MOST:,.0f}; set dump: false"
                )


def _meta(
    settings: DumpSettings,
    windows: Artifact,
    rows: Artifact,
    before: "Draft",
    packed: Packed,
    sides: list[str],
) -> dict[str, Any]:
    arch, (count, width) = before.shared.arch, packed.ids.shape
    split = windows.manifest.settings["split"]
    rule = "window index % 10 == 9" if split == "windows" else "record index % 10 == 9"
    return {
        "windows": count,
        "window": width,
        "topk": rows.manifest.settings["topk"],
        "draft_topk": min(BEST, arch.vocab_size),
        "chain": settings.depth,
        "hidden": arch.hidden_size,
        "vocab": arch.vocab_size,
        "norm_eps": arch.rms_norm_eps,
        "norm_style": before.shared.family.norm_style,
        "layout": settings.layout,
        "wiring": settings.wiring.model_dump(),
        "dtype": settings.dtype,
        "sides": sides,
        "sets": list(packed.names),
        "heldout": f"{rule}; the array held_out says it of every window",
        "trunk_rows": rows.name,
    }
