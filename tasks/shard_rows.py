"""A shard of the trunk pass: which windows, their arrays, the call that fills these."""

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from conf.schema import Settings
from store.arrays import Dtype, WindowArray, create_array
from store.keys import digest_of
from tasks.stage import Runtime

if TYPE_CHECKING:
    import torch

    from nets.trunk import Trunk

ROWS_A_CALL = 2048


class ShardSettings(Settings):
    """What decides the bytes of a shard beside the trunk and the ids."""

    topk: int
    dtype: Literal["bf16", "f32"]
    window: int
    compile: bool


@dataclass(frozen=True)
class WindowShard:
    """Some windows' ids and lengths; they alone, and the order, are its identity."""

    ids: npt.NDArray[np.uint32]
    length: npt.NDArray[np.int64]

    @cached_property
    def content_digest(self) -> str:
        """sha256 of the true ids, padding left out."""
        rows = [
            row[:n].tobytes().hex() for row, n in zip(self.ids, self.length, strict=True)
        ]
        return digest_of(rows)


def windows_a_call(settings: ShardSettings) -> int:
    """How many windows go through the trunk at once."""
    return max(1, ROWS_A_CALL // settings.window)


def create_rows(
    out: Path, settings: ShardSettings, count: int, model: "Trunk"
) -> dict[str, WindowArray]:
    """The empty arrays of a shard of `count` windows."""
    rows = (count, settings.window)
    width = int(model.shared.embed_VH.shape[1])
    kept = _kept(settings, model)
    hidden: Dtype = "u2" if settings.dtype == "bf16" else "f4"
    # A chunk is what one call of the trunk writes: one window, or several short ones.
    create = partial(create_array, out, windows_per_chunk=windows_a_call(settings))
    return {
        "hidden": create("hidden", (*rows, width), hidden, "raw"),
        "topk_id": create("topk_id", (*rows, kept), "u4", "packed"),
        "topk_p": create("topk_p", (*rows, kept), "f4", "packed"),
        "logsumexp": create("logsumexp", rows, "f4", "packed"),
    }


def _kept(settings: ShardSettings, model: "Trunk") -> int:
    """K, no more than the vocabulary has."""
    return min(settings.topk, int(model.shared.head_VH.shape[0]))


def forward_rows(
    model: "Trunk",
    shard: WindowShard,
    part: slice,
    settings: ShardSettings,
    runtime: Runtime,
) -> dict[str, npt.NDArray[np.generic]]:
    """One call of the trunk; padded rows are zero in every array."""
    import torch

    from nets.head import topk_rows

    ids = torch.from_numpy(_read_ids(shard, part, settings)).to(runtime.device)
    with torch.no_grad():  # not inference_mode: the head's buffers outlive this call
        hidden = model.hidden(ids)
        normed = model.shared.final_norm(hidden).flatten(0, 1)
        top = topk_rows(
            normed, model.shared.head_VH, _kept(settings, model), runtime.head_budget_bytes
        )
    shape, count = ids.shape, len(shard.length[part])
    live = np.arange(shape[1])[None, :] < shard.length[part][:, None]
    rows = {
        "hidden": _storable(hidden.to(model.shared.embed_VH.dtype)),
        "topk_id": top.id_RK.reshape(*shape, -1).cpu().numpy().astype(np.uint32),
        "topk_p": top.p_RK.reshape(*shape, -1).cpu().numpy(),
        "logsumexp": top.logsumexp_R.reshape(shape).cpu().numpy(),
    }
    return {
        name: np.where(live[..., None] if a.ndim == 3 else live, a[:count], a.dtype.type(0))
        for name, a in rows.items()
    }


def _read_ids(
    shard: WindowShard, part: slice, settings: ShardSettings
) -> npt.NDArray[np.int64]:
    """The windows' ids; compiled code wants calls of one size, so blanks fill it up."""
    ids = shard.ids[part].astype(np.int64)
    missing = windows_a_call(settings) - len(ids)
    return np.pad(ids, ((0, missing), (0, 0))) if settings.compile and missing else ids


def _storable(hidden: "torch.Tensor") -> npt.NDArray[np.generic]:
    """f32 as it is, bf16 as its 16 bits."""
    import torch

    kept = hidden.contiguous().cpu()
    bits = kept.view(torch.uint16) if kept.dtype == torch.bfloat16 else kept
    array: npt.NDArray[np.generic] = bits.numpy()
    return array
