"""Where training starts from, and how that draft is wired: given, probed, or by format."""

from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from cmfio.header import HEAL
from conf.base import NORMED, RAW, Wiring
from conf.schema import RunConfig
from store.artifact import Artifact
from tasks.drafts import DraftSource
from tasks.model_file import ModelFile, ModelPart, open_model, open_part
from tasks.probe import ProbeSettings, SampleSettings, probe_draft, sample_windows
from tasks.probe_text import MORE_WINDOWS, wiring_found
from tasks.shard_rows import ShardSettings
from tasks.stage import Runtime
from tasks.trunk_pass import run_trunk

MOST_ROUNDS = 3


@dataclass(frozen=True)
class Start:
    """The draft training starts from; `init`, if given, replaces its block and norm.

    `origin` is the model that the config's `init` names, whichever of the two it became.
    """

    draft: DraftSource
    init: DraftSource | None = None
    is_fresh: bool = False
    origin: ModelPart | None = None


@dataclass(frozen=True)
class FoundWiring:
    """A wiring, and who says so; `probe` is what was measured, if anything was."""

    wiring: Wiring
    by: Literal["probe", "config", "format"]
    probe: Artifact | None = None

    @property
    def said(self) -> dict[str, str]:
        """For the provenance of what is written."""
        return {**self.wiring.model_dump(), "by": self.by}


def shipped_start(
    config: RunConfig, model: ModelFile, init: ModelFile | None
) -> Start | None:
    """The student's own draft, or another model's; None where a fresh one is started."""
    if config.start_from_last_layer:
        return None
    if init is None:
        return Start(model.draft) if model.has_draft else None
    if not model.has_draft:
        return Start(init.draft, origin=init.draft)
    return Start(model.draft, init.draft, origin=init.draft)


def find_wiring(
    model: ModelFile,
    config: RunConfig,
    windows: Artifact,
    shard: ShardSettings,
    runtime: Runtime,
) -> FoundWiring:
    """The wiring the config gives, else what a probe of the shipped draft finds.

    Without a shipped draft it is what runtimes of the model's format use. InputError, with
    the probe's table, where that can't tell.
    """
    if config.probe.wiring != "auto":
        return FoundWiring(config.probe.wiring, "config")
    probe = probe_start(model, config, windows, shard, runtime)
    if probe is None:
        return FoundWiring(convention(model), "format")
    wiring = wiring_found(probe, model.path)
    told = f"the draft's wiring: hidden {wiring.hidden}, chain {wiring.chain}"
    runtime.progress.say(told + unlike_record(model, config, wiring))
    return FoundWiring(wiring, "probe", probe)


def convention(model: ModelFile) -> Wiring:
    """What runtimes of the model's format feed a draft (healing.md §3)."""
    return NORMED if model.layout == "hf" else RAW


def recorded_wiring(model: ModelFile) -> Wiring | None:
    """What the heal that wrote the model's draft trained it for; None if none did."""
    with open_part(model.draft) as weights:
        healed = weights.header.provenance_by_key.get(HEAL)
    said = healed.get("wiring") if isinstance(healed, dict) else None
    if not isinstance(said, dict):
        return None
    try:
        return Wiring.model_validate({side: said.get(side) for side in Wiring.model_fields})
    except ValidationError:
        return None  # a header that someone else wrote so


def _trained_for(model: ModelFile, config: RunConfig) -> Wiring | None:
    """By the model's record; None where the draft that is probed is another's block."""
    return recorded_wiring(model) if config.start == "own" else None


def unlike_record(model: ModelFile, config: RunConfig, wiring: Wiring) -> str:
    """More words where a heal wrote this draft for another wiring than a probe found."""
    recorded = _trained_for(model, config)
    if recorded is None or recorded == wiring:
        return ""
    return (
        f"; a heal wrote it for {recorded.text} (hidden/chain), which names fewer of the "
        "trunk's tokens on this text: set probe.wiring to keep that"
    )


def probe_start(
    model: ModelFile,
    config: RunConfig,
    windows: Artifact,
    shard: ShardSettings,
    runtime: Runtime,
) -> Artifact | None:
    """The shipped draft on the rows of a few windows; None if a fresh one is started.

    While these leave the wiring open, four times as many are taken, twice at most.
    """
    init = None if config.init is None else open_model(config.init, runtime)
    start = shipped_start(config, model, init)
    if start is None:
        return None
    depth = max(config.train.depth, config.measure.depth)
    usual = _trained_for(model, config) or convention(model)
    settings = ProbeSettings(depth=depth, dtype=shard.dtype, convention=usual)
    wanted = config.probe.windows
    for _ in range(MOST_ROUNDS):
        rows = _probe_rows(model, windows, wanted, shard, runtime)
        probe = probe_draft(
            settings,
            runtime,
            windows=rows.sample,
            rows=rows.rows,
            trunk=model.trunk,
            draft=start.draft,
            init=start.init,
        )
        is_all = int(rows.sample.numbers["windows"]) < wanted
        if probe.numbers["outcome"] != "unclear" or is_all:
            break
        wanted *= MORE_WINDOWS
    return probe


@dataclass(frozen=True)
class _Sample:
    """Some windows and the trunk's rows for them."""

    sample: Artifact
    rows: Artifact


def _probe_rows(
    model: ModelFile, windows: Artifact, count: int, shard: ShardSettings, runtime: Runtime
) -> _Sample:
    packed = windows.manifest.settings
    sample = sample_windows(
        SampleSettings(
            windows=count,
            window=packed["window"],
            names=packed["names"],
            pad=packed["pad"],
        ),
        runtime,
        windows=windows,
    )
    eager = shard.model_copy(update={"compile": False})  # a few windows don't pay for it
    rows = run_trunk(model.trunk, sample, eager, count, runtime, "probe")
    return _Sample(sample, rows)
