"""The heal on one screen: windows, trunk pass, training, files, measures, report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cmfio.policy import parse_request
from conf.machine import ComputeType, resolve_dtype
from conf.schema import OutputSpec, RunConfig, TrainSettings
from store.artifact import Artifact
from tasks.drafts import DraftSource, StartSettings, start_draft
from tasks.errors import InputError
from tasks.measure import MeasureSettings, measure_draft
from tasks.model_file import MODEL_NAME, ModelFile, ModelPart, model_in, open_model
from tasks.pack import (
    PackSettings,
    needs_tokenizer,
    pack_windows,
    refuse_too_few,
    steps_of_epochs,
)
from tasks.report import Healed, HealStory, ReportFiles, Written, write_report
from tasks.rewrite import RewriteSettings, publish, refuse_bad_outputs, rewrite_model
from tasks.shard_rows import ShardSettings
from tasks.sources import DataSet, open_set
from tasks.stage import Runtime
from tasks.train import heal_provenance, train_draft
from tasks.trunk_pass import resolve_compile, run_trunk

FRESH_WINDOWS = 8  # the size of the last layer's input hardly moves after a few


@dataclass(frozen=True)
class Ground:
    """What every draft on one trunk is trained and measured on."""

    model: ModelFile
    windows: Artifact
    rows: Artifact
    measure: MeasureSettings

    def measured(self, draft: DraftSource, runtime: Runtime, label: str) -> Artifact:
        """A draft's hold rates on this trunk, over every held-out window."""
        return measure_draft(
            self.measure,
            runtime,
            windows=self.windows,
            rows=self.rows,
            trunk=self.model.trunk,
            draft=draft,
            label=label,
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


def heal_model(config: RunConfig, runtime: Runtime, command: str) -> ReportFiles:
    """Heals one model as configured, publishes its outputs, returns where the report lies.

    Raises InputError, CmfError or ModelError for what a user can mend, before anything runs
    where it can be known before.
    """
    story = heal_story(config, runtime, command)
    publish_outputs(story.healed, config.outputs, runtime)
    return write_report(story, runtime)


def heal_story(config: RunConfig, runtime: Runtime, command: str) -> HealStory:
    """Every stage of a heal before its report; writes nothing outside the store."""
    inputs = {"student": config.student, "init model": config.init}
    refuse_bad_outputs_of(config, {k: Path(v) for k, v in inputs.items() if v is not None})
    student = open_model(config.student, runtime)
    init = None if config.init is None else open_model(config.init, runtime)
    refuse_no_draft(config, student, init)
    ground = lay_ground(student, config, open_sets(config, runtime), runtime)
    start = starting_draft(config, ground, init, runtime)
    healed = heal_on(ground, start, settings_of(config, ground, start), config, runtime)
    measures = {"stale": healed.stale, "healed": healed.outputs[0].measure}
    return HealStory(config, command, ground.windows, ground.rows, healed, measures)


def refuse_bad_outputs_of(config: RunConfig, inputs: Mapping[str, Path]) -> None:
    """What is wrong with outputs and codecs, before any model or data is opened."""
    for output in config.outputs:
        parse_request(output.codec)
    refuse_bad_outputs([Path(output.path) for output in config.outputs], inputs)


def open_sets(config: RunConfig, runtime: Runtime) -> list[DataSet]:
    """The data sets of a config, digests taken; names are made unique."""
    sets = [open_set(spec, runtime.store.digests) for spec in config.data]
    names = [data.name for data in sets]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InputError(
            f"data: two sets are called {', '.join(sorted(twice))}; give each a `name` of "
            "its own"
        )
    return sets


def lay_ground(
    model: ModelFile,
    config: RunConfig,
    sets: Sequence[DataSet],
    runtime: Runtime,
    label: str = "",
) -> Ground:
    """Windows and the trunk's rows for a model."""
    dtype: ComputeType = resolve_dtype(config.trunk.dtype, runtime.device)
    depth = max(config.train.depth, config.measure.depth)
    windows = pack_windows(
        PackSettings(
            window=config.pack.window,
            depth=depth,
            split=config.pack.split,
            names=tuple(data.name for data in sets),
            tokens=tuple(data.tokens for data in sets),
        ),
        runtime,
        sets=sets,
        tokenizer=model.vocab if needs_tokenizer(sets) else None,
        label=label,
    )
    refuse_too_few(windows, config.train.batch)
    shard = ShardSettings(
        topk=config.trunk.topk,
        dtype=dtype,
        window=config.pack.window,
        compile=resolve_compile(config.trunk.compile, model.trunk, windows),
    )
    rows = run_trunk(
        model.trunk, windows, shard, config.trunk.shard_windows, runtime, label
    )
    return Ground(
        model, windows, rows, MeasureSettings(depth=config.measure.depth, dtype=dtype)
    )


@dataclass(frozen=True)
class Start:
    """The draft training starts from; `init`, if given, replaces its block and norm.

    `origin` is the model that the config's `init` names, whichever of the two it became.
    """

    draft: DraftSource
    init: DraftSource | None = None
    is_fresh: bool = False
    origin: ModelPart | None = None


def starting_draft(
    config: RunConfig, ground: Ground, init: ModelFile | None, runtime: Runtime
) -> Start:
    """The student's own draft, another model's, or a fresh one (healing.md §3)."""
    if config.start_from_last_layer:
        return Start(fresh_draft(ground, runtime), is_fresh=True)
    if init is None:
        return Start(ground.model.draft)
    if not ground.model.has_draft:
        return Start(init.draft, origin=init.draft)
    return Start(ground.model.draft, init.draft, origin=init.draft)


def fresh_draft(ground: Ground, runtime: Runtime) -> Artifact:
    """A draft started from the last layer of a trunk."""
    settings = StartSettings(windows=FRESH_WINDOWS, dtype=ground.measure.dtype)
    return start_draft(settings, runtime, trunk=ground.model.trunk, windows=ground.windows)


def settings_of(config: RunConfig, ground: Ground, start: Start) -> TrainSettings:
    """The training settings with every `auto` resolved, and epochs turned into steps."""
    train = config.train
    whole = "all" if start.is_fresh else "block"
    steps = train.steps or steps_of_epochs(ground.windows, train.epochs, train.batch)
    return TrainSettings(
        **train.model_dump(exclude={"trainable", "epochs", "steps"}),
        trainable=whole if train.trainable == "auto" else train.trainable,
        steps=steps,
        dtype=ground.measure.dtype,
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
    stale = ground.measured(start.draft, runtime, "stale")
    trained = ground.trained(start.draft, settings, runtime, "heal" + suffix, start.init)
    said = heal_provenance(trained, ground.windows, ground.rows, start.origin)
    written_anew = settings.trainable if ground.model.has_draft else "all"
    codecs = dict.fromkeys([output.codec for output in config.outputs] or ["keep"])
    outputs = []
    for codec in codecs:
        file = rewrite_model(
            RewriteSettings(codec=codec, trained=written_anew, provenance=said),
            runtime,
            student=ground.model.whole,
            draft=trained,
            label=codec + suffix,
        )
        written = model_in(file, runtime)
        outputs.append(
            Written(
                codec,
                file,
                ground.measured(written.draft, runtime, f"healed {codec}{suffix}"),
            )
        )
    return Healed(stale, trained, tuple(outputs))


def publish_outputs(
    healed: Healed, outputs: Sequence[OutputSpec], runtime: Runtime
) -> None:
    """Copies each written model to the path asked for."""
    files = {written.codec: written.file for written in healed.outputs}
    for output in outputs:
        publish(files[output.codec].path / MODEL_NAME, Path(output.path))
        runtime.progress.say(f"wrote {output.path} ({output.codec})")


def refuse_no_draft(config: RunConfig, student: ModelFile, init: ModelFile | None) -> None:
    """A model without a draft is refused before any data is read, with the ways on."""
    if init is not None and not init.has_draft:
        raise no_draft(init.path)
    if not (student.has_draft or init is not None or config.start_from_last_layer):
        raise no_draft(student.path)


def no_draft(path: Path) -> InputError:
    """The refusal of a model without `model.mtp.*`, with the two ways on."""
    return InputError(
        f"{path}: carries no MTP draft (no model.mtp.* tensors); name a model that has one "
        "with `init`, or set start_from_last_layer: true to start a fresh draft"
    )


def __getattr__(name: str) -> object:
    """`flows.heal:heal`, what deployments name; only then is Prefect imported."""
    if name == "heal":
        from flows.deployed import heal

        return heal
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
