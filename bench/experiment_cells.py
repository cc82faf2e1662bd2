"""An experiment's heals: each cell and seed trained on its own ground, measured on others.

All of it is cached stages, so that asking again is how results are read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from conf.demo import DemoConfig
from conf.experiment import Cell, Experiment, Overrides, Place
from conf.load import apply_override, check, find_config, load_config, read_yaml
from conf.schema import RunConfig
from flows.demo import demo_source, fold, native_draft, with_draft
from flows.ground import Ground, lay_ground, open_sets
from flows.heal import settings_of
from flows.runtime import open_runtime
from flows.wiring import Start
from nets.hold import HoldArrays
from store.artifact import Artifact
from tasks.measure import read_holds
from tasks.model_file import ModelFile
from tasks.progress import make_progress
from tasks.stage import Runtime

# What lies under every cell that trains and measures alike.
GROUND_KEYS = ("data", "pack", "trunk", "measure")


@dataclass(frozen=True)
class Job:
    """One heal: a cell's place among the experiment's, at a demonstration, with a seed."""

    experiment: str
    place: Place
    cell: int
    seed: int


@dataclass(frozen=True)
class Result:
    """What a heal held on one ground, and the seconds its training took.

    `sampled` bounds the share of first drafts accepted where both sides sample at
    temperature 1; None where that was not measured.
    """

    holds: HoldArrays
    seconds: float
    sampled: tuple[float, float] | None = None


def jobs_of(name: str, experiment: Experiment) -> list[Job]:
    """Every heal of an experiment."""
    return [
        Job(name, place, cell, seed)
        for place in experiment.places
        for seed in place.seeds
        for cell in range(len(experiment.cells))
    ]


def load_experiment(name: str) -> Experiment:
    """`conf/experiments/NAME.yaml`, checked."""
    path = find_experiments()[name]
    return check(Experiment, read_yaml(path), str(path))


def find_experiments() -> dict[str, Path]:
    """Every experiment's file by its name, in order."""
    folder = find_config("demo").parent / "experiments"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


class Bench:
    """The folds of the demonstrations and the grounds on them, each made once a process."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.grounds: dict[str, Ground] = {}

    @cache  # noqa: B019 — one bench a process
    def student(self, demo: str, overrides: Overrides = ()) -> tuple[ModelFile, Runtime]:
        """The folded model with its stale draft."""
        config = load_config(DemoConfig, demo, overrides)
        runtime = open_runtime(config.heal.runtime, self.store, make_progress())
        bare, sets = demo_source(config, runtime), open_sets(config.heal, runtime)
        ground = lay_ground(bare, config.heal, sets, runtime, "source")
        native = native_draft(ground, config.heal, config.demo.native, runtime)
        source = with_draft(bare, native, runtime)
        return fold(source, ground, config, runtime), runtime

    def ground(self, demo: str, config: RunConfig) -> Ground:
        """The windows and rows of a config on a demonstration's fold."""
        key = config.model_dump_json(include=set(GROUND_KEYS)) + demo
        if key not in self.grounds:
            student, runtime = self.student(demo)
            sets = open_sets(config, runtime)
            self.grounds[key] = lay_ground(student, config, sets, runtime, demo)
        return self.grounds[key]

    def stale(self, job: Job, experiment: Experiment) -> dict[str, HoldArrays]:
        """What the draft held before, on every ground that cells are measured on."""
        _, runtime = self.student(job.place.demo)
        return {
            name: read_holds(ground.measured(ground.model.draft, runtime, "stale"))
            for name, ground in self._measured_on(job, experiment)
        }

    def heal(self, job: Job, experiment: Experiment) -> dict[str, Result]:
        """What one heal held, by ground."""
        cell, demo = experiment.cells[job.cell], job.place.demo
        config = cell_config(job, cell)
        ground = self.ground(demo, config)
        _, runtime = self.student(demo)
        start = Start(ground.model.draft)
        label = f"{job.experiment} {demo} {cell.name} seed {job.seed}"
        settings = settings_of(config, ground, start)
        draft = ground.trained(start.draft, settings, runtime, label)
        took = draft.manifest.seconds
        return {
            name: _result(other.measured(draft, runtime, label), took)
            for name, other in self._measured_on(job, experiment)
        }

    def _measured_on(
        self, job: Job, experiment: Experiment
    ) -> Iterator[tuple[str, Ground]]:
        for name, overrides in experiment.measured.items():
            config = heal_config(job.place.demo, job.place.set, overrides)
            yield name, self.ground(job.place.demo, config)


def _result(measured: Artifact, seconds: float) -> Result:
    told = {one["temperature"]: one for one in measured.manifest.numbers["sampling"]}
    first = told[1.0]["steps"][0]["sampled"] if 1.0 in told else None
    return Result(read_holds(measured), seconds, first and (first[0], first[1]))


def cell_config(job: Job, cell: Cell) -> RunConfig:
    """The settings of one heal."""
    once = heal_config(job.place.demo, job.place.set, cell.set)
    assert once.train.steps is not None, "demonstrations say how many steps"
    longer = (
        f"train.steps={once.train.steps * cell.times}",
        f"train.eval_every={once.train.eval_every * cell.times}",
        f"train.seed={job.seed}",
    )
    return heal_config(job.place.demo, job.place.set, cell.set, longer)


def heal_config(demo: str, *overrides: Overrides) -> RunConfig:
    """A demonstration's `heal:` with these settings on top, the later ones winning."""
    raw = read_yaml(find_config(demo))["heal"]
    for override in _flat(overrides):
        apply_override(raw, override)
    return check(RunConfig, raw, demo)


def _flat(overrides: Sequence[Overrides]) -> list[str]:
    return [one for several in overrides for one in several]
