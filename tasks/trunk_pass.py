"""trunk_pass: the trunk over every window, once: raw hidden rows, top-k, logsumexp in Zarr.

One cached task a shard of windows, then a join that only refers to them. A shard's key is
what the trunk reads (trunk, ids, K, compute type), never a set's name or what is held out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from cmfio.reader import open_container
from conf.errors import ConfigError
from conf.machine import has_compiler
from conf.schema import Choice
from nets.geometry import trunk_geometry
from store.artifact import Artifact
from store.manifest import Manifest
from store.space import free_bytes, refuse_little_room
from tasks.errors import InputError
from tasks.model_file import ModelPart, torch_dtype, weights_of
from tasks.packed import Windows, read_windows
from tasks.planning import is_pending
from tasks.progress import Bar
from tasks.shard_rows import (
    ShardSettings,
    WindowShard,
    create_rows,
    forward_rows,
    windows_a_call,
)
from tasks.stage import Runtime, StageResult, stage

if TYPE_CHECKING:
    from nets.trunk import Trunk

# Tokens × layers × hidden size of a pass below which a layer takes longer to compile than
# that saves; measured on 30 layers of 576.
COMPILE_FROM = 150_000 * 30 * 576


class JoinSettings(ShardSettings):
    """A pass over all windows: which shards, of how many windows."""

    shard_windows: int
    windows: int


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
            self._model = load_trunk(
                self.part, settings.dtype, runtime, is_compiled=settings.compile
            )
        return self._model

    def passed(self, tokens: int) -> None:
        """Counts tokens that just went through the trunk."""
        self.tokens += tokens
        self.bar.advance(tokens)

    def found(self, tokens: int) -> None:
        """Counts tokens whose rows were in the store."""
        self.tokens += tokens
        self.bar.skip(tokens)


def load_trunk(
    part: ModelPart,
    dtype: Literal["bf16", "f32"],
    runtime: Runtime,
    *,
    is_compiled: bool = False,
) -> "Trunk":
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
            is_compiled=is_compiled,
        )


def resolve_compile(wanted: Choice, trunk: ModelPart, windows: Artifact) -> bool:
    """Whether a pass compiles its layers; `auto`: if it is long enough for that to pay.

    ConfigError where it is wanted and there is no compiler.
    """
    if wanted is True and not has_compiler():
        raise ConfigError(
            "trunk.compile is true: there is no C++ compiler (CXX, else g++); install one, "
            "or use auto or false"
        )
    if wanted != "auto":
        return wanted
    return has_compiler() and not is_pending(trunk) and _pays_compiled(trunk, windows)


def _pays_compiled(trunk: ModelPart, windows: Artifact) -> bool:
    """Each width of layer is compiled by itself, so a folded trunk needs more tokens."""
    with open_container(trunk.path) as container:
        arch = container.header.arch
        shapes = {name: entry.shape for name, entry in container.entries.items()}
    widths = len({*trunk_geometry(arch, shapes).layers})
    work = int(windows.numbers["tokens"]) * arch.num_layers * arch.hidden_size
    return work >= COMPILE_FROM * widths


def _shard_bytes(
    settings: ShardSettings, *, trunk: ResidentTrunk, shard: WindowShard
) -> int:
    """The rows of a shard as they are in memory; on disk top-k is a little smaller."""
    with open_container(trunk.part.path) as container:
        arch = container.header.arch
    hidden = arch.hidden_size * (2 if settings.dtype == "bf16" else 4)
    kept = min(settings.topk, arch.vocab_size)
    return len(shard.length) * settings.window * (hidden + kept * (4 + 4) + 4)


def _shard_tokens(
    settings: ShardSettings,
    past: Manifest | None,
    *,
    trunk: ResidentTrunk,
    shard: WindowShard | Artifact,
) -> Mapping[str, object]:
    if isinstance(shard, Artifact):
        return {"tokens": shard.numbers["tokens"]}
    return {"tokens": int(shard.length.sum())}


@stage("trunk_shard", version=1, needs=_shard_bytes, expects=_shard_tokens)
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
    arrays = create_rows(out, settings, len(shard.length), model)
    total = len(shard.length)
    with runtime.stop.heeded():
        for start in range(0, total, windows_a_call(settings)):
            runtime.stop.check(f"in a shard, after {start} of its {total} windows")
            part = slice(start, start + windows_a_call(settings))
            rows = forward_rows(model, shard, part, settings, runtime)
            for name, values in rows.items():
                arrays[name][part] = values
            trunk.passed(int(shard.length[part].sum()))
    return {"tokens": int(shard.length.sum())}


def _pass_tokens(
    settings: JoinSettings, past: Manifest | None, *, shards: Sequence[Artifact]
) -> Mapping[str, object]:
    return {"tokens": sum(int(shard.numbers["tokens"]) for shard in shards)}


@stage("trunk_pass", version=1, expects=_pass_tokens)
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

    InputError for a token id that the trunk has no embedding for, DiskFull before the first
    shard if the missing ones won't fit.
    """
    if is_pending(windows) or is_pending(trunk):
        return _pass_to_come(trunk, windows, settings, shard_windows, runtime, label)
    packed = read_windows(windows)
    _refuse_foreign_ids(packed, trunk)
    total = int(packed.length.sum())
    shards, done = [], 0
    with runtime.progress.task(
        f"trunk pass {label}".strip(), total=total, unit="tokens"
    ) as bar:
        resident = ResidentTrunk(trunk, bar)
        _refuse_little_room(settings, runtime, resident, [*_cut(packed, shard_windows)])
        for shard in _cut(packed, shard_windows):
            shards.append(
                trunk_shard(settings, runtime, trunk=resident, shard=shard, label=label)
            )
            done += int(shard.length.sum())
            resident.found(done - resident.tokens)
    joined = JoinSettings(
        **settings.model_dump(), shard_windows=shard_windows, windows=len(packed.length)
    )
    return join_shards(joined, runtime, shards=shards, label=label)


def _pass_to_come(
    trunk: ModelPart,
    windows: Artifact,
    settings: ShardSettings,
    shard_windows: int,
    runtime: Runtime,
    label: str,
) -> Artifact:
    """The pass of a plan that cannot know its shards yet: all of them as one."""
    every = trunk_shard(settings, runtime, trunk=trunk, shard=windows, label=label)
    joined = JoinSettings(
        **settings.model_dump(),
        shard_windows=shard_windows,
        windows=int(windows.numbers["windows"]),
    )
    return join_shards(joined, runtime, shards=[every], label=label)


def _refuse_little_room(
    settings: ShardSettings,
    runtime: Runtime,
    trunk: ResidentTrunk,
    shards: Sequence[WindowShard],
) -> None:
    """DiskFull unless the store has room for every shard that is still to come."""
    root = runtime.store.root
    needs = [_shard_bytes(settings, trunk=trunk, shard=shard) for shard in shards]
    if sum(needs) <= free_bytes(root):  # spares a look at every shard
        return
    missing = sum(
        need
        for need, shard in zip(needs, shards, strict=True)
        if trunk_shard.find(settings, runtime, trunk=trunk, shard=shard) is None
    )
    refuse_little_room(root, missing, "the trunk pass")


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
