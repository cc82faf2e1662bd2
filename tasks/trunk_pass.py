"""trunk_pass: the trunk over every window, once: raw hidden rows, top-k, logsumexp in Zarr.

One cached task a shard of windows, then a join that only refers to them. A shard's key is
what the trunk reads (trunk, ids, K, compute type, the records' borders where these are kept
apart), never a set's name or what is held out.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from cmfio.header import Arch
from conf.errors import ConfigError
from conf.machine import has_compiler
from conf.schema import Choice
from nets.geometry import TrunkGeometry, trunk_geometry
from store.artifact import Artifact
from store.manifest import Manifest
from store.space import free_bytes, refuse_little_room, size_text
from tasks.errors import InputError
from tasks.model_file import ModelPart, open_part
from tasks.packed import Packed, read_windows
from tasks.pass_trunk import PassTrunk
from tasks.placement import place_trunk
from tasks.planning import is_pending
from tasks.shard_rows import (
    ShardSettings,
    WindowShard,
    tokens_a_call,
)
from tasks.stage import Runtime, StageResult, stage
from tasks.trunk_shard import make_shards, pass_trunk, row_bytes, shard_bytes, trunk_shard

# Tokens × layers × hidden size of a pass below which a layer takes longer to compile than
# that saves; measured on 30 layers of 576.
COMPILE_FROM = 150_000 * 30 * 576


class JoinSettings(ShardSettings):
    """A pass over all windows: which shards, of how many windows."""

    shard_windows: int
    windows: int


def refuse_wide_topk(topk: int, trunk: ModelPart) -> None:
    """InputError for more tokens a row than the trunk can tell of."""
    if is_pending(trunk):
        return
    with open_part(trunk) as model:
        known = model.header.arch.vocab_size
    if topk > known:
        raise InputError(
            f"trunk.topk is {topk}: {trunk.path} knows {known} tokens; keep at most as "
            "many a row, 64 are enough for most"
        )


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
        pass_trunk(trunk, bar, cut, settings, runtime) as own,
    ):
        _refuse_little_room(settings, runtime, own)
        shards = make_shards(settings, runtime, own, label)
    if any(map(is_pending, shards)):
        _say_placement(trunk, settings, min(shard_windows, len(packed.length)), runtime)
    joined = JoinSettings(
        **settings.model_dump(), shard_windows=shard_windows, windows=len(packed.length)
    )
    return join_shards(joined, runtime, shards=shards, label=label)


def _say_placement(
    trunk: ModelPart, settings: ShardSettings, shard_windows: int, runtime: Runtime
) -> None:
    """Has a plan tell whether the pass to come holds its trunk or streams it."""
    if runtime.planner is not None and not is_pending(trunk):
        tokens = tokens_a_call(settings, shard_windows)
        placing = place_trunk(trunk, settings.dtype, tokens, runtime)
        runtime.planner.note(placing.text(), about=f"placement {trunk.content_digest}")


def _say_room(
    trunk: ModelPart, settings: ShardSettings, tokens: int, runtime: Runtime
) -> None:
    """Has a plan tell what the rows of a pass over at most so many tokens take."""
    if runtime.planner is None or is_pending(trunk):
        return
    with open_part(trunk) as container:
        each = row_bytes(settings, container.header.arch)
    free = free_bytes(runtime.store.root)
    runtime.planner.note(
        f"the trunk's rows take {size_text(each)} a token, at most "
        f"{size_text(each * tokens)} for {tokens:,}; {size_text(free)} are free on that "
        "disk",
        about=f"room {trunk.content_digest}",
    )


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
    _say_room(trunk, settings, int(windows.numbers["tokens"]), runtime)
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
    needs = [shard_bytes(settings, trunk=trunk, shard=shard) for shard in shards]
    if sum(needs) <= free_bytes(root):  # spares a look at every shard
        return
    pairs = zip(needs, shards, strict=True)
    missing = sum(need for need, shard in pairs if trunk.is_missing(shard))
    refuse_little_room(root, missing, "the trunk pass")


def _refuse_foreign_ids(packed: Packed, trunk: ModelPart) -> None:
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


def _cut(windows: Packed, shard_windows: int, *, isolate: bool) -> Iterator[WindowShard]:
    for start in range(0, len(windows.length), shard_windows):
        part = slice(start, start + shard_windows)
        record = windows.record[part] if isolate else None
        yield WindowShard(windows.ids[part], windows.length[part], record)
