"""trunk_pass: the trunk over every window, once: raw hidden rows, top-k, logsumexp in Zarr.

One cached task a shard of windows, then a join that only refers to them. A shard's key is
what the trunk reads (trunk, ids, K, compute type, the records' borders where these are kept
apart), never a set's name or what is held out.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from cmfio.header import Arch
from conf.errors import ConfigError
from conf.machine import has_compiler
from conf.schema import Choice
from nets.geometry import TrunkGeometry, trunk_geometry
from store.artifact import Artifact
from store.manifest import Manifest
from store.space import free_bytes, refuse_little_room
from tasks.errors import InputError
from tasks.model_file import ModelPart, open_part
from tasks.packed import Windows, read_windows
from tasks.pass_trunk import PassTrunk
from tasks.placement import place_trunk
from tasks.planning import is_pending
from tasks.shard_rows import (
    ShardSettings,
    WindowShard,
    create_rows,
    stored_rows,
    tokens_a_call,
    windows_a_call,
)
from tasks.stage import Runtime, StageResult, stage

# Tokens × layers × hidden size of a pass below which a layer takes longer to compile than
# that saves; measured on 30 layers of 576.
COMPILE_FROM = 150_000 * 30 * 576


class JoinSettings(ShardSettings):
    """A pass over all windows: which shards, of how many windows."""

    shard_windows: int
    windows: int


def resolve_compile(wanted: Choice, trunk: ModelPart, windows: Artifact) -> bool:
    """Whether a pass compiles its layers; `auto`: if it is long enough for that to pay.

    ConfigError where it is wanted and there is no compiler, or the family's layers are run
    as they are.
    """
    if wanted is True and not has_compiler():
        raise ConfigError(
            "trunk.compile is true: there is no C++ compiler (CXX, else g++); install one, "
            "or use auto or false"
        )
    if wanted is False or is_pending(trunk) or not has_compiler():
        return wanted is True
    with open_part(trunk) as container:
        arch = container.header.arch
        geometry = trunk_geometry(arch, container.shapes)
    if geometry.family.not_compiled is None:
        return wanted is True or _pays_compiled(arch, geometry, windows)
    if wanted is True:
        raise ConfigError(
            f"trunk.compile is true: {geometry.family.title} layers are not compiled, "
            f"{geometry.family.not_compiled}; use auto or false"
        )
    return False


def _pays_compiled(arch: Arch, geometry: TrunkGeometry, windows: Artifact) -> bool:
    """Each width of layer is compiled by itself, so a folded trunk needs more tokens."""
    work = int(windows.numbers["tokens"]) * arch.num_layers * arch.hidden_size
    return work >= COMPILE_FROM * len({*geometry.layers})


def _shard_bytes(settings: ShardSettings, *, trunk: PassTrunk, shard: WindowShard) -> int:
    """The rows of a shard as they are in memory; on disk top-k is a little smaller."""
    arch = trunk.arch
    hidden = arch.hidden_size * (2 if settings.dtype == "bf16" else 4)
    kept = min(settings.topk, arch.vocab_size)
    return len(shard.length) * settings.window * (hidden + kept * (4 + 4) + 4)


def _shard_tokens(
    settings: ShardSettings,
    past: Manifest | None,
    *,
    trunk: PassTrunk,
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
    trunk: PassTrunk,
    shard: WindowShard,
) -> Mapping[str, object]:
    """`hidden` [n, T, H], `topk_id` and `topk_p` [n, T, K], `logsumexp` [n, T]."""
    way = trunk.way(settings, runtime)
    total = len(shard.length)
    arrays = create_rows(out, settings, total, trunk.arch)
    with runtime.stop.heeded():
        for start in range(0, total, windows_a_call(settings)):
            runtime.stop.check(f"in a shard, after {start} of its {total} windows")
            part = slice(start, start + windows_a_call(settings))
            hidden = way.hidden(shard, part, runtime)
            rows = stored_rows(hidden, way.head(), shard.length[part], settings, runtime)
            for name, values in rows.items():
                arrays[name][part] = values
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
    cut = [*_cut(packed, shard_windows, isolate=settings.isolate)]
    with (
        runtime.progress.task(
            f"trunk pass {label}".strip(), total=total, unit="tokens"
        ) as bar,
        PassTrunk(trunk, bar, cut, partial(_is_missing, settings, runtime, trunk)) as own,
    ):
        _refuse_little_room(settings, runtime, own)
        shards = [_found_or_made(settings, runtime, own, shard, label) for shard in cut]
    if any(map(is_pending, shards)):
        _say_placement(trunk, settings, min(shard_windows, len(packed.length)), runtime)
    joined = JoinSettings(
        **settings.model_dump(), shard_windows=shard_windows, windows=len(packed.length)
    )
    return join_shards(joined, runtime, shards=shards, label=label)


def _found_or_made(
    settings: ShardSettings,
    runtime: Runtime,
    trunk: PassTrunk,
    shard: WindowShard,
    label: str,
) -> Artifact:
    """A shard's rows; those that were in the store count as done, not as speed."""
    asked = trunk.asked
    made = trunk_shard(settings, runtime, trunk=trunk, shard=shard, label=label)
    if trunk.asked == asked:
        trunk.bar.skip(int(shard.length.sum()))
    return made


def _is_missing(
    settings: ShardSettings, runtime: Runtime, trunk: ModelPart, shard: WindowShard
) -> bool:
    return trunk_shard.find(settings, runtime, trunk=trunk, shard=shard) is None


def _say_placement(
    trunk: ModelPart, settings: ShardSettings, shard_windows: int, runtime: Runtime
) -> None:
    """Has a plan tell whether the pass to come holds its trunk or streams it."""
    if runtime.planner is not None and not is_pending(trunk):
        tokens = tokens_a_call(settings, shard_windows)
        placing = place_trunk(trunk, settings.dtype, tokens, runtime)
        runtime.planner.note(placing.text(), about=f"placement {trunk.content_digest}")


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
    _say_placement(trunk, settings, shard_windows, runtime)
    joined = JoinSettings(
        **settings.model_dump(),
        shard_windows=shard_windows,
        windows=int(windows.numbers["windows"]),
    )
    return join_shards(joined, runtime, shards=[every], label=label)


def _refuse_little_room(
    settings: ShardSettings, runtime: Runtime, trunk: PassTrunk
) -> None:
    """DiskFull unless the store has room for every shard that is still to come."""
    root, shards = runtime.store.root, trunk.shards
    needs = [_shard_bytes(settings, trunk=trunk, shard=shard) for shard in shards]
    if sum(needs) <= free_bytes(root):  # spares a look at every shard
        return
    pairs = zip(needs, shards, strict=True)
    missing = sum(need for need, shard in pairs if trunk.is_missing(shard))
    refuse_little_room(root, missing, "the trunk pass")


def _refuse_foreign_ids(packed: Windows, trunk: ModelPart) -> None:
    with open_part(trunk) as container:
        vocab = container.header.arch.vocab_size
    foreign = np.argwhere(packed.ids >= vocab)
    if len(foreign):
        window, place = (int(i) for i in foreign[0])
        raise InputError(
            f"data set {packed.names[packed.set_index[window]]}: holds the token id "
            f"{packed.ids[window, place]:,}, {trunk.path} has ids below {vocab:,}; the "
            "data was tokenised for another model, give text or this one's ids"
        )


def _cut(windows: Windows, shard_windows: int, *, isolate: bool) -> Iterator[WindowShard]:
    for start in range(0, len(windows.length), shard_windows):
        part = slice(start, start + shard_windows)
        record = windows.record[part] if isolate else None
        yield WindowShard(windows.ids[part], windows.length[part], record)
