"""The heal on one screen: windows, trunk pass, training, files, measures, report."""

from pathlib import Path
from typing import Any, Literal

from conf.schema import RunConfig
from conf.training import TrainSettings
from flows.draft_checks import check_drafts
from flows.dump import dump_heal
from flows.ground import Ground, lay_ground, open_sets, tap_trunk
from flows.inputs import refuse_missing
from flows.output_work import OutputWork, write_ahead
from flows.outputs import (
    publish_outputs,
    refuse_bad_outputs_of,
    say_foreign_wiring,
    targets_of,
)
from flows.runs import recorded
from flows.runtime import library_runtime
from flows.wiring import Start, shipped_start
from store.artifact import Artifact
from tasks.drafts import DraftSource, StartSettings, start_draft
from tasks.model_file import ModelFile, open_model
from tasks.pack import steps_of_epochs
from tasks.report import Healed, HealReport, HealStory, ReportFiles, Written, write_report
from tasks.rewrite import RewriteSettings
from tasks.stage import Runtime
from tasks.told_progress import Event, Tell, tell_nobody
from tasks.train import heal_provenance

__all__ = ["Event", "HealReport", "heal_model"]

FRESH_WINDOWS = 8  # the size of the last layer's input hardly moves after a few


def heal_model(
    config: RunConfig, *, progress: Tell = tell_nobody, store: Path | None = None
) -> HealReport:
    """Heals one model from within another program; what came of it (docs/library.md).

    `progress` is called with every `Event`, in the thread that calls this; what it raises
    ends the heal, and finished stages are kept. `store`: else `runtime.store`, else
    `./.heal`. The process is left as it is: no signal handlers, environment or threads.
    Raises InputError, CmfError or ModelError for what a user can mend.
    """
    refuse_missing(config, "heal_model")
    runtime = library_runtime(config.runtime, store, progress)
    files = heal_recorded(config, runtime, "heal_model(config)")
    outputs = tuple(target.path for target in targets_of(config))
    return HealReport(
        files.run, files.page, files.report, outputs, tuple(runtime.ledger.events)
    )


def heal_recorded(config: RunConfig, runtime: Runtime, command: str) -> ReportFiles:
    """A heal that is written down in the store's book of runs, as every command's is."""
    with recorded(runtime, command, config) as recording:
        files = run_heal(config, recording.runtime, command)
        recording.reported(files)
    return files


def run_heal(config: RunConfig, runtime: Runtime, command: str) -> ReportFiles:
    """Heals one model as configured, publishes its outputs, returns where the report lies.

    Raises InputError, CmfError or ModelError for what a user can mend, before anything runs
    where it can be known before.
    """
    story = heal_story(config, runtime, command)
    publish_outputs(story.healed, targets_of(config), runtime)
    return write_report(story, runtime)


def heal_story(config: RunConfig, runtime: Runtime, command: str) -> HealStory:
    """Every stage of a heal before its report; writes nothing outside the store."""
    inputs = {"student": config.student, "init model": config.init}
    refuse_bad_outputs_of(config, {k: Path(v) for k, v in inputs.items() if v is not None})
    student = open_model(config.student, runtime)
    init = None if config.init is None else open_model(config.init, runtime)
    check_drafts(config, student, init, runtime)
    ground = lay_ground(student, config, open_sets(config, runtime), runtime)
    say_foreign_wiring(targets_of(config), ground.measure.wiring, runtime)
    tap_trunk(ground, config, runtime)
    start = starting_draft(config, ground, init, runtime)
    healed = heal_on(ground, start, settings_of(config, ground, start), config, runtime)
    dump_heal(config, ground, start, healed.trained, runtime)
    measures = {"stale": healed.stale}
    if healed.trained is not None:
        measures["healed"] = healed.outputs[0].measure
    return HealStory(
        config,
        command,
        ground.windows,
        ground.rows,
        ground.found.probe,
        healed,
        measures,
    )


def starting_draft(
    config: RunConfig, ground: Ground, init: ModelFile | None, runtime: Runtime
) -> Start:
    """The student's own draft, another model's, or a fresh one (healing.md §3)."""
    shipped = shipped_start(config, ground.model, init)
    return shipped or Start(fresh_draft(ground, runtime), is_fresh=True)


def fresh_draft(ground: Ground, runtime: Runtime) -> Artifact:
    """A draft started from the last layer of a trunk."""
    settings = StartSettings(windows=FRESH_WINDOWS, dtype=ground.measure.dtype)
    return start_draft(settings, runtime, trunk=ground.model.trunk, windows=ground.windows)


def settings_of(config: RunConfig, ground: Ground, start: Start) -> TrainSettings:
    """The training settings with every `auto` resolved, and epochs turned into steps."""
    train = config.train
    whole = "all" if start.is_fresh or train.layout == "exact" else "block"
    steps = train.steps or steps_of_epochs(
        ground.windows, train.epochs, train.batch, train.kinds
    )
    return TrainSettings(
        **train.model_dump(exclude={"trainable", "epochs", "steps"}),
        trainable=whole if train.trainable == "auto" else train.trainable,
        steps=steps,
        dtype=ground.measure.dtype,
        wiring=ground.measure.wiring,
    )


def heal_on(
    ground: Ground,
    start: Start,
    settings: TrainSettings,
    config: RunConfig,
    runtime: Runtime,
    suffix: str = "",
) -> Healed:
    """Measures the draft before, trains it, writes it in every codec and measures each.

    `suffix` tells several heals of one run apart where they are shown.
    """
    if not config.train.trains:
        return as_it_is(ground, start, config, runtime)
    stale = ground.measured(start.draft, runtime, "stale")
    timing = ground.timed(start.draft, config, runtime)
    trained = ground.trained(start.draft, settings, runtime, "heal" + suffix, start.init)
    said = _provenance(ground, start, trained, stale)
    written_anew = settings.trainable if ground.model.has_draft else "all"
    rewriting = RewriteSettings(codec="keep", trained=written_anew, provenance=said)
    outputs = write_codecs(ground, trained, rewriting, config, runtime, suffix)
    return Healed(stale, trained, outputs, timing)


def as_it_is(ground: Ground, start: Start, config: RunConfig, runtime: Runtime) -> Healed:
    """Measures the starting draft, writes it untrained in the codecs asked for, if any."""
    measured = ground.measured(start.draft, runtime, "stale", start.init)
    timing = ground.timed(start.draft, config, runtime)
    if config.outputs and not targets_of(config):
        runtime.progress.say(
            "nothing was trained, and keep is the only codec asked for: nothing is written"
        )
    if not targets_of(config):
        return Healed(measured, None, (), timing)
    said = _provenance(ground, start, None, measured)
    written_anew: Literal["block", "all"] = "block" if ground.model.has_draft else "all"
    rewriting = RewriteSettings(codec="keep", trained=written_anew, provenance=said)
    draft = start.init or start.draft
    outputs = write_codecs(ground, draft, rewriting, config, runtime)
    return Healed(measured, None, outputs, timing)


def _provenance(
    ground: Ground, start: Start, trained: Artifact | None, measured: Artifact
) -> dict[str, Any]:
    """What the written files say; of a draft that nothing mentioned, how it was found."""
    said = heal_provenance(
        trained, measured, ground.windows, ground.rows, start.origin, ground.found.said
    )
    head = ground.model.head
    is_inferred = head is not None and not head.is_mentioned
    return said | ({"draft": "inferred from its tensors"} if is_inferred else {})


def write_codecs(
    ground: Ground,
    draft: DraftSource,
    rewriting: RewriteSettings,
    config: RunConfig,
    runtime: Runtime,
    suffix: str = "",
) -> tuple[Written, ...]:
    """The student with this draft in every codec asked for, each opened and measured."""
    own = ("keep", ground.model.layout)
    wanted = dict.fromkeys([(t.codec, t.layout) for t in targets_of(config)] or [own])
    works = [
        OutputWork(
            ground, draft, rewriting.model_copy(update={"codec": codec}), layout, suffix
        )
        for codec, layout in wanted
    ]
    write_ahead(works, runtime)
    return tuple(work.written(runtime) for work in works)


def __getattr__(name: str) -> object:
    """`flows.heal:heal`, what deployments name; only then is Prefect imported."""
    if name == "heal":
        from flows.deployed import heal

        return heal
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
