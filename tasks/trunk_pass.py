"""trunk_pass: the trunk over every window, once: raw hidden rows, top-k, logsumexp in Zarr.

One cached task a shard of windows, then a join that only refers to them. A shard's key is
what the trunk reads (trunk, ids, K, compute type), never a set's name or what is held out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from cmfio.reader import open_container
from conf.schema import Settings
from store.arrays import Dtype, WindowArray, create_array
from store.artifact import Artifact
from store.keys import digest_of
from tasks.errors import InputError
from tasks.model_file import ModelPart, torch_dtype, weights_of
from tasks.packed import Windows, read_windows
from tasks.progress import Bar
from tasks.stage import Runtime, StageResult, stage

if TYPE_CHECKING:
    import torch

    from nets.trunk import Trunk

ROWS_A_CALL = 2048


class ShardSettings(Settings):
    """What decides the bytes of a shard beside the trunk and the ids."""

    topk: int
    dtype: Literal["bf16", "f32"]
    window: int


class JoinSettings(ShardSettings):
    """A pass over all windows: which shards, of how many windows."""

    shard_windows: int
    windows: int


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


@dataclass
class ResidentTrunk:
    """The trunk of one pass: loaded when the first missing shard asks for it, then kept."""

    part: ModelPart
    bar: Bar
    tokens: int = 0
    _model: "Trunk | None" = None

    @property
    def content_digest(self) -> str:
        """The trunk's identity."""
        return self.part.content_digest

    def model(self, settings: ShardSettings, runtime: Runtime) -> "Trunk":
        """The trunk in the compute type, on the device."""
        if self._model is None:
            self._model = load_trunk(self.part, settings.dtype, runtime)
        return self._model

    def passed(self, tokens: int) -> None:
        """Counts tokens that are done, run or cached."""
        self.tokens += tokens
        self.bar.advance(tokens)


def load_trunk(part: ModelPart, dtype: Literal["bf16", "f32"], runtime: Runtime) -> "Trunk":
    """The whole trunk of a model file in memory."""
    from nets.trunk import build_trunk

    with open_container(part.path) as container:
        weights = weights_of(container)
        return build_trunk(
            container.header.arch,
            weights.shapes,
            weights.read,
            device=runtime.device,
            dtype=torch_dtype(dtype),
        )


@stage("trunk_shard", version=1)
def trunk_shard(
    out: Path,
    settings: ShardSettings,
    runtime: Runtime,
    *,
    trunk: ResidentTrunk,
    shard: WindowShard,
) -> Mapping[str, object]:
    """`hidden` [n, T, H], `topk_id` and `topk_p` [n, T, K], `logsumexp` [n, T]."""
    model = trunk.model(settings, runtime)
    arrays = _create(out, settings, len(shard.length), model)
    for start in range(0, len(shard.length), _batch(settings)):
        part = slice(start, start + _batch(settings))
        rows = _forward(model, shard, part, settings, runtime)
        for name, values in rows.items():
            arrays[name][part] = values
        trunk.passed(int(shard.length[part].sum()))
    return {"tokens": int(shard.length.sum())}


@stage("trunk_pass", version=1)
def join_shards(
    out: Path, settings: JoinSettings, runtime: Runtime, *, shards: Sequence[Artifact]
) -> StageResult:
    """The pass as one artifact that refers to its shards; numbers: tokens."""
    tokens = sum(int(shard.numbers["tokens"]) for shard in shards)
    return StageResult(
        numbers={"tokens": tokens, "shards": len(shards)}, parts=list(shards)
    )


def run_trunk(
    trunk: ModelPart,
    windows: Artifact,
    settings: ShardSettings,
    shard_windows: int,
    runtime: Runtime,
    label: str = "",
) -> Artifact:
    """The trunk pass over all windows: each shard is cached, the missing ones run.

    InputError for a token id that the trunk has no embedding for.
    """
    packed = read_windows(windows)
    _refuse_foreign_ids(packed, trunk)
    total = int(packed.length.sum())
    shards, done = [], 0
    with runtime.progress.task(
        f"trunk pass {label}".strip(), total=total, unit="tokens"
    ) as bar:
        resident = ResidentTrunk(trunk, bar)
        for shard in _cut(packed, shard_windows):
            shards.append(
                trunk_shard(settings, runtime, trunk=resident, shard=shard, label=label)
            )
            done += int(shard.length.sum())
            resident.passed(done - resident.tokens)
    joined = JoinSettings(
        **settings.model_dump(), shard_windows=shard_windows, windows=len(packed.length)
    )
    return join_shards(joined, runtime, shards=shards, label=label)


def _refuse_foreign_ids(packed: Windows, trunk: ModelPart) -> None:
    with open_container(trunk.path) as container:
        vocab = container.header.arch.vocab_size
    foreign = np.argwhere(packed.ids >= vocab)
    if len(foreign):
        window, place = (int(i) for i in foreign[0])
        raise InputError(
            f"data set {packed.names[packed.set_index[window]]}: holds the token id "
            f"{packed.ids[window, place]:,}, {trunk.path} has ids below {vocab:,}; the "
            "data was tokenised for another model, give text or this one's ids"
        )


def _cut(windows: Windows, shard_windows: int) -> Iterator[WindowShard]:
    for start in range(0, len(windows.length), shard_windows):
        part = slice(start, start + shard_windows)
        yield WindowShard(windows.ids[part], windows.length[part])


def _batch(settings: ShardSettings) -> int:
    return max(1, ROWS_A_CALL // settings.window)


def _create(
    out: Path, settings: ShardSettings, count: int, model: "Trunk"
) -> dict[str, WindowArray]:
    rows = (count, settings.window)
    width = int(model.shared.embed_VH.shape[1])
    kept = _kept(settings, model)
    hidden: Dtype = "u2" if settings.dtype == "bf16" else "f4"
    # A chunk is what one call of the trunk writes: one window, or several short ones.
    create = partial(create_array, out, windows_per_chunk=_batch(settings))
    return {
        "hidden": create("hidden", (*rows, width), hidden, "raw"),
        "topk_id": create("topk_id", (*rows, kept), "u4", "packed"),
        "topk_p": create("topk_p", (*rows, kept), "f4", "packed"),
        "logsumexp": create("logsumexp", rows, "f4", "packed"),
    }


def _kept(settings: ShardSettings, model: "Trunk") -> int:
    """K, no more than the vocabulary has."""
    return min(settings.topk, int(model.shared.head_VH.shape[0]))


def _forward(
    model: "Trunk",
    shard: WindowShard,
    part: slice,
    settings: ShardSettings,
    runtime: Runtime,
) -> dict[str, npt.NDArray[np.generic]]:
    """One call of the trunk; padded rows are zero in every array."""
    import torch

    from nets.head import topk_rows

    ids = torch.from_numpy(shard.ids[part].astype(np.int64)).to(runtime.device)
    with torch.no_grad():  # not inference_mode: the head's buffers outlive this call
        hidden = model.hidden(ids)
        normed = model.shared.final_norm(hidden).flatten(0, 1)
        top = topk_rows(
            normed, model.shared.head_VH, _kept(settings, model), runtime.head_budget_bytes
        )
    shape = ids.shape
    live = np.arange(shape[1])[None, :] < shard.length[part][:, None]
    rows = {
        "hidden": _storable(hidden),
        "topk_id": top.id_RK.reshape(*shape, -1).cpu().numpy().astype(np.uint32),
        "topk_p": top.p_RK.reshape(*shape, -1).cpu().numpy(),
        "logsumexp": top.logsumexp_R.reshape(shape).cpu().numpy(),
    }
    return {
        name: np.where(live[..., None] if a.ndim == 3 else live, a, a.dtype.type(0))
        for name, a in rows.items()
    }


def _storable(hidden: "torch.Tensor") -> npt.NDArray[np.generic]:
    """f32 as it is, bf16 as its 16 bits."""
    import torch

    kept = hidden.contiguous().cpu()
    bits = kept.view(torch.uint16) if kept.dtype == torch.bfloat16 else kept
    array: npt.NDArray[np.generic] = bits.numpy()
    return array
