"""trunk_shard: the rows of some windows, cached; made here or by workers, one by one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cmfio.arch import Arch
from conf.memory import free_memory
from store.artifact import Artifact
from store.keys import digest_of
from store.manifest import Manifest
from store.nearest import AT_PACE
from tasks.count import Count
from tasks.model_file import ModelPart
from tasks.pass_trunk import PassTrunk
from tasks.placement import trunk_bytes
from tasks.progress import Bar
from tasks.runner import make_ahead
from tasks.shard_rows import (
    ShardSettings,
    WindowShard,
    create_rows,
    stored_rows,
    tokens_a_call,
    windows_a_call,
)
from tasks.stage import Runtime, StageResult, stage
from tasks.worker import KEPT

# An order's ids, 4 bytes each, go through the cluster's scheduler.
MOST_TOKENS = 1 << 21
# Workers that a cluster of unknown size is thought to have.
SOME = 4


def shard_bytes(settings: ShardSettings, *, trunk: PassTrunk, shard: WindowShard) -> int:
    """The rows of a shard as they are in memory; on disk top-k is a little smaller."""
    return len(shard.length) * settings.window * row_bytes(settings, trunk.arch)


def row_bytes(settings: ShardSettings, arch: Arch) -> int:
    """What a pass keeps of one token."""
    hidden = arch.hidden_size * (2 if settings.dtype == "bf16" else 4)
    kept = min(settings.topk, arch.vocab_size)
    return hidden + kept * (4 + 4) + 4


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


@stage("trunk_shard", version=1, needs=shard_bytes, expects=_shard_tokens, on_device=True)
def trunk_shard(
    out: Path,
    settings: ShardSettings,
    runtime: Runtime,
    *,
    trunk: PassTrunk,
    shard: WindowShard,
) -> StageResult:
    """`hidden` [n, T, H], `topk_id` and `topk_p` [n, T, K], `logsumexp` [n, T]."""
    way = trunk.way(settings, runtime)
    total = len(shard.length)
    arrays = create_rows(out, settings, total, trunk.arch)
    calls = Count("calls")  # begun with the trunk in place
    with runtime.stop.heeded():
        for start in range(0, total, windows_a_call(settings)):
            runtime.stop.check(f"in a shard, after {start} of its {total} windows")
            part = slice(start, start + windows_a_call(settings))
            hidden = way.hidden(shard, part, runtime)
            rows = stored_rows(hidden, way.head(), shard.length[part], settings, runtime)
            for name, values in rows.items():
                arrays[name][part] = values
            calls.add(len(shard.length[part]), {})
    notes = {AT_PACE: calls.at_pace_s()} if way.is_steady else {}
    return StageResult({"tokens": int(shard.length.sum())}, notes=notes)


def pass_trunk(
    part: ModelPart,
    bar: Bar,
    shards: Sequence[WindowShard],
    settings: ShardSettings,
    runtime: Runtime,
) -> PassTrunk:
    """The trunk of a pass over these shards; not placed yet."""
    longest = max(len(shard.length) for shard in shards)
    return PassTrunk(
        part, bar, shards, longest, partial(_is_missing, settings, runtime, part)
    )


def make_shards(
    settings: ShardSettings, runtime: Runtime, trunk: PassTrunk, label: str
) -> list[Artifact]:
    """Every shard of the pass in order: found, or made here or by the run's workers."""
    if runtime.planner is None and not runtime.runner.is_here:
        missing = [shard for shard in trunk.shards if trunk.is_missing(shard)]
        if runtime.runner.is_worth(len(missing)):
            return _made_by_workers(settings, runtime, trunk, missing, label)
    return [
        _found_or_made(settings, runtime, trunk, shard, label) for shard in trunk.shards
    ]


def _made_by_workers(
    settings: ShardSettings,
    runtime: Runtime,
    trunk: PassTrunk,
    missing: Sequence[WindowShard],
    label: str,
) -> list[Artifact]:
    every, left = (
        sum(int(shard.length.sum()) for shard in some) for some in (trunk.shards, missing)
    )
    trunk.bar.skip(every - left)
    whole = trunk.part.elsewhere()
    numbers = {shard.content_digest: at for at, shard in enumerate(trunk.shards, 1)}
    works = [
        ShardWork(
            part=whole,
            settings=settings,
            shards=tuple(some),
            longest=trunk.longest,
            label=label,
            title=_title(label, [numbers[shard.content_digest] for shard in some]),
        )
        for some in _together(settings, runtime, trunk, missing)
    ]
    make_ahead(works, trunk.bar, runtime)
    return [
        trunk_shard(settings, runtime, trunk=trunk, shard=shard, label=label)
        for shard in trunk.shards
    ]


def _title(label: str, numbers: Sequence[int]) -> str:
    which = f"shard {numbers[0]}"
    if len(numbers) > 1:
        which = f"shards {numbers[0]} to {numbers[-1]}"
    return f"trunk pass {label}".strip() + f", {which}"


def _together(
    settings: ShardSettings,
    runtime: Runtime,
    trunk: PassTrunk,
    missing: Sequence[WindowShard],
) -> Iterator[Sequence[WindowShard]]:
    """One shard an order; where layers are streamed, as many as go through them at once.

    Whether they are is told from this machine: those of a cluster are thought alike.
    """
    count = 1
    if _is_streamed(settings, runtime, trunk):
        workers = runtime.runner.workers or SOME
        most = max(1, MOST_TOKENS // (settings.window * trunk.longest))
        count = min(most, -(-len(missing) // workers))
    for start in range(0, len(missing), count):
        yield missing[start : start + count]


def _is_streamed(settings: ShardSettings, runtime: Runtime, trunk: PassTrunk) -> bool:
    if runtime.placement != "auto":
        return runtime.placement == "stream"
    tokens = tokens_a_call(settings, trunk.longest)
    need = trunk_bytes(trunk.part, settings.dtype, tokens, runtime).resident
    return need > free_memory(runtime.device)


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


@dataclass(frozen=True)
class ShardWork:
    """Some shards of a pass, for a worker: it keeps the trunk for the next ones."""

    part: ModelPart
    settings: ShardSettings
    shards: tuple[WindowShard, ...]
    longest: int
    label: str
    title: str

    @property
    def size(self) -> int:
        """Tokens."""
        return sum(int(shard.length.sum()) for shard in self.shards)

    @property
    def models(self) -> tuple[ModelPart, ...]:
        """The trunk."""
        return (self.part,)

    def __call__(self, runtime: Runtime, bar: Bar) -> None:
        """Make the shards that are missing."""
        trunk = KEPT.trunk(self._pass_key(runtime), lambda: self._pass(runtime, bar))
        trunk.shards, trunk.bar = self.shards, bar
        for shard in self.shards:
            _found_or_made(self.settings, runtime, trunk, shard, self.label)

    def _pass(self, runtime: Runtime, bar: Bar) -> PassTrunk:
        missing = partial(_is_missing, self.settings, runtime, self.part)
        return PassTrunk(self.part, bar, self.shards, self.longest, missing)

    def _pass_key(self, runtime: Runtime) -> str:
        """What a trunk that is held must have in common with the one that is asked for."""
        return digest_of(
            {
                "part": [
                    str(self.part.path),
                    str(self.part.patch),
                    self.part.content_digest,
                ],
                "settings": self.settings.model_dump(mode="json"),
                "longest": self.longest,
                "store": str(runtime.store.root),
                "placed": [runtime.device, runtime.placement, runtime.threads],
            }
        )
