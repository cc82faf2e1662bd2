"""What every draft on one trunk is trained and measured on: windows, the trunk's rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from conf.machine import resolve_dtype
from conf.schema import RunConfig, WriteSpec
from conf.training import TrainSettings
from flows.wiring import FoundWiring, find_wiring
from store.artifact import Artifact
from tasks.drafts import DraftSource
from tasks.measure import MeasureSettings, measure_draft
from tasks.model_file import ModelFile
from tasks.pack import PackSettings, needs_tokenizer, pack_windows, refuse_too_few
from tasks.planning import is_pending
from tasks.prompts import TextToWrite, open_text
from tasks.set_names import refuse_bad_names
from tasks.shard_rows import ShardSettings
from tasks.sources import DataSet, open_set
from tasks.stage import Runtime
from tasks.tap_layers import TapSettings, refuse_absent_layers, tap_layers
from tasks.time_decode import time_decode, timing_settings
from tasks.train import train_draft
from tasks.trunk_pass import refuse_wide_topk, resolve_compile, run_trunk
from tasks.write_text import write_text


@dataclass(frozen=True)
class Ground:
    """What every draft on one trunk is trained and measured on, and how it is wired."""

    model: ModelFile
    windows: Artifact
    rows: Artifact
    measure: MeasureSettings
    found: FoundWiring

    def measured(
        self,
        draft: DraftSource,
        runtime: Runtime,
        label: str,
        init: DraftSource | None = None,
    ) -> Artifact:
        """A draft's hold rates on this trunk, over every held-out window."""
        return measure_draft(
            self.measure,
            runtime,
            windows=self.windows,
            rows=self.rows,
            trunk=self.model.trunk,
            draft=draft,
            init=init,
            label=label,
        )

    def timed(
        self, draft: DraftSource, config: RunConfig, runtime: Runtime
    ) -> Artifact | None:
        """What verifying and drafting take here, if `measure.cost` asks for it.

        It hangs on a draft's shape alone, so that a heal's is timed once: as it starts.
        """
        if config.measure.cost != "timed":
            return None
        measure = self.measure
        return time_decode(
            timing_settings(measure.depth, measure.wiring, measure.dtype, runtime.device),
            runtime,
            windows=self.windows,
            trunk=self.model.trunk,
            draft=draft,
        )

    def trained(
        self,
        draft: DraftSource,
        settings: TrainSettings,
        runtime: Runtime,
        label: str,
        init: DraftSource | None = None,
    ) -> Artifact:
        """A draft trained on this trunk's rows."""
        return train_draft(
            settings,
            runtime,
            windows=self.windows,
            rows=self.rows,
            trunk=self.model.trunk,
            draft=draft,
            init=init,
            label=label,
        )


def open_sets(config: RunConfig, runtime: Runtime) -> list[DataSet | TextToWrite]:
    """The data sets of a config, digests taken, and texts that a trunk has yet to write.

    InputError for a name that can't be shown, and for two of one name.
    """
    digests = runtime.store.digests
    sets = [
        open_text(spec, digests) if isinstance(spec, WriteSpec) else open_set(spec, digests)
        for spec in config.data
    ]
    refuse_bad_names([data.name for data in sets])
    return sets


def lay_ground(
    model: ModelFile,
    config: RunConfig,
    sets: Sequence[DataSet | TextToWrite],
    runtime: Runtime,
    label: str = "",
) -> Ground:
    """Windows and the trunk's rows for a model, which writes its own text first.

    Before the long pass over all windows a few tell how the draft is wired.
    """
    refuse_absent_layers(config.taps, model.trunk)
    refuse_wide_topk(config.trunk.topk, model.trunk)
    windows = pack_sets(model, config, sets, runtime, label)
    shard = shard_settings(model, config, windows, runtime)
    found = find_wiring(model, config, windows, shard, runtime)
    rows = run_trunk(
        model.trunk, windows, shard, config.trunk.shard_windows, runtime, label
    )
    measure = MeasureSettings(
        depth=config.measure.depth,
        temperatures=config.measure.temperatures,
        written=tuple(
            one.write.temperature if isinstance(one, WriteSpec) else None
            for one in config.data
        ),
        dtype=shard.dtype,
        wiring=found.wiring,
    )
    return Ground(model, windows, rows, measure, found)


def pack_sets(
    model: ModelFile,
    config: RunConfig,
    sets: Sequence[DataSet | TextToWrite],
    runtime: Runtime,
    label: str = "",
) -> Artifact:
    """The windows of all sets; InputError if they are too few to train on."""
    dtype = resolve_dtype(config.trunk.dtype, runtime.device)
    texts = [
        write_text(data, model, dtype, runtime, label)
        if isinstance(data, TextToWrite)
        else data
        for data in sets
    ]
    windows = pack_windows(
        PackSettings(
            window=config.pack.window,
            depth=max(config.train.depth, config.measure.depth),
            split=config.pack.split,
            names=tuple(data.name for data in sets),
            tokens=tuple(data.tokens for data in sets),
            hold_all=config.pack.hold_all,
            pad=next(iter(model.ends), 0),
        ),
        runtime,
        sets=texts,
        tokenizer=model.vocab if needs_tokenizer(texts) else None,
        label=label,
    )
    if runtime.planner is not None and is_pending(windows):
        runtime.planner.note(
            f"the data is not packed yet: at most {windows.numbers['tokens']:,} tokens, "
            "what follows is told for as many"
        )
    refuse_too_few(windows, config.train.batch)
    return windows


def shard_settings(
    model: ModelFile, config: RunConfig, windows: Artifact, runtime: Runtime
) -> ShardSettings:
    """The settings of a pass over these windows, every `auto` resolved."""
    return ShardSettings(
        topk=config.trunk.topk,
        dtype=resolve_dtype(config.trunk.dtype, runtime.device),
        window=config.pack.window,
        compile=resolve_compile(config.trunk.compile, model.trunk, windows),
        isolate=config.pack.isolate,
    )


def tap_trunk(ground: Ground, config: RunConfig, runtime: Runtime) -> None:
    """The layers' rows that `taps` asks for, in the store; says where they lie."""
    if config.taps is None:
        return
    tapped = tap_layers(
        TapSettings(layers=config.taps.layers, dtype=ground.measure.dtype),
        runtime,
        windows=ground.windows,
        rows=ground.rows,
        trunk=ground.model.trunk,
    )
    runtime.progress.say(f"taps of layers {list(config.taps.layers)}: {tapped.path}")
