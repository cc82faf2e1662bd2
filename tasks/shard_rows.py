"""A shard of the trunk pass: which windows, their arrays, the call that fills these."""

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from pydantic import SerializerFunctionWrapHandler, model_serializer

from cmfio.header import Arch
from conf.base import Settings
from store.arrays import Dtype, WindowArray, create_array
from store.keys import digest_of
from tasks.stage import Runtime

if TYPE_CHECKING:
    import torch

    from nets.stream import Call, HeadPart

ROWS_A_CALL = 2048


class ShardSettings(Settings):
    """What decides the bytes of a shard beside the trunk and the ids."""

    topk: int
    dtype: Literal["bf16", "f32"]
    window: int
    compile: bool
    isolate: bool = False

    @model_serializer(mode="wrap")
    def _off_is_unsaid(self, dump: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Without `isolate` where that is off: passes from before it keep their keys."""
        said: dict[str, object] = dump(self)
        return said if self.isolate else {n: v for n, v in said.items() if n != "isolate"}


@dataclass(frozen=True)
class WindowShard:
    """Some windows' ids and lengths; they alone, and the order, are its identity.

    Where records are kept apart, `record` numbers them row by row and counts too.
    """

    ids: npt.NDArray[np.uint32]
    length: npt.NDArray[np.int64]
    record: npt.NDArray[np.int64] | None = None

    @cached_property
    def content_digest(self) -> str:
        """sha256 of the true ids, and of the records' borders; padding left out."""
        rows = [
            row[:n].tobytes().hex() for row, n in zip(self.ids, self.length, strict=True)
        ]
        if self.record is None:
            return digest_of(rows)
        firsts = [
            np.flatnonzero(np.diff(row[:n])).tolist()
            for row, n in zip(self.record, self.length, strict=True)
        ]
        return digest_of({"ids": rows, "records": firsts})


def windows_a_call(settings: ShardSettings) -> int:
    """How many windows go through the trunk at once."""
    return max(1, ROWS_A_CALL // settings.window)


def tokens_a_call(settings: ShardSettings, shard_windows: int) -> int:
    """Rows a call of a shard of so many windows has at most."""
    calls_of = windows_a_call(settings)
    return settings.window * (
        calls_of if settings.compile else min(calls_of, shard_windows)
    )


def create_rows(
    out: Path, settings: ShardSettings, count: int, arch: Arch
) -> dict[str, WindowArray]:
    """The empty arrays of a shard of `count` windows."""
    rows = (count, settings.window)
    kept = min(settings.topk, arch.vocab_size)
    hidden: Dtype = "u2" if settings.dtype == "bf16" else "f4"
    # A chunk is what one call of the trunk writes: one window, or several short ones.
    create = partial(create_array, out, windows_per_chunk=windows_a_call(settings))
    return {
        "hidden": create("hidden", (*rows, arch.hidden_size), hidden, "raw"),
        "topk_id": create("topk_id", (*rows, kept), "u4", "packed"),
        "topk_p": create("topk_p", (*rows, kept), "f4", "packed"),
        "logsumexp": create("logsumexp", rows, "f4", "packed"),
    }


def read_call(shard: WindowShard, part: slice, settings: ShardSettings) -> "Call":
    """What one call of the trunk reads, on the CPU."""
    import torch

    from nets.stream import Call

    ids = torch.from_numpy(_read(shard.ids, part, settings))
    if shard.record is None:
        return Call(ids)
    return Call(ids, torch.from_numpy(_read(shard.record, part, settings)))


def stored_rows(
    hidden_BTH: "torch.Tensor",
    head: "HeadPart",
    length: npt.NDArray[np.int64],
    settings: ShardSettings,
    runtime: Runtime,
) -> dict[str, npt.NDArray[np.generic]]:
    """The arrays of windows so long, of their raw rows; padded rows are zero in each.

    There may be more rows than windows: what filled up a call is dropped.
    """
    import torch

    from nets.head import topk_rows

    kept = min(settings.topk, len(head.head_VH))
    with torch.no_grad():  # not inference_mode: the head's buffers outlive this call
        normed = head.final_norm(hidden_BTH).flatten(0, 1)
        top = topk_rows(normed, head.head_VH, kept, runtime.head_budget_bytes)
    shape = hidden_BTH.shape[:2]
    live = np.arange(shape[1])[None, :] < length[:, None]
    rows = {
        "hidden": _storable(hidden_BTH.to(head.head_VH.dtype)),
        "topk_id": top.id_RK.reshape(*shape, -1).cpu().numpy().astype(np.uint32),
        "topk_p": top.p_RK.reshape(*shape, -1).cpu().numpy(),
        "logsumexp": top.logsumexp_R.reshape(shape).cpu().numpy(),
    }
    count = len(length)
    return {
        name: np.where(live[..., None] if a.ndim == 3 else live, a[:count], a.dtype.type(0))
        for name, a in rows.items()
    }


def _read(
    rows: npt.NDArray[np.integer], part: slice, settings: ShardSettings
) -> npt.NDArray[np.int64]:
    """Some windows' rows; compiled code wants calls of one size, so blanks fill it up."""
    some = rows[part].astype(np.int64)
    missing = windows_a_call(settings) - len(some)
    return np.pad(some, ((0, missing), (0, 0))) if settings.compile and missing else some


def _storable(hidden: "torch.Tensor") -> npt.NDArray[np.generic]:
    """f32 as it is, bf16 as its 16 bits."""
    import torch

    kept = hidden.contiguous().cpu()
    bits = kept.view(torch.uint16) if kept.dtype == torch.bfloat16 else kept
    array: npt.NDArray[np.generic] = bits.numpy()
    return array
