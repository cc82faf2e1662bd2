"""`heal plan`: which stages would run, why, and what they would cost. Runs nothing."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from conf.demo import SHIPPED_DEMOS, DemoConfig
from conf.errors import ConfigError
from conf.load import find_config, load_config, read_yaml, shipped_config
from conf.machine import resolve_device
from conf.schema import RunConfig, RuntimeConfig
from flows.command import WIDTH
from flows.demo import demo_stories, tell_all
from flows.heal import heal_story
from flows.inputs import load_heal
from flows.runtime import store_root
from flows.typed import command_line
from store.opened import open_store
from store.space import size_text
from tasks.count import duration
from tasks.planning import PlannedStage, Planner
from tasks.report import report_of
from tasks.stage import Runtime

UNKNOWN = "unknown"
INDENT = " " * 10


@dataclass(frozen=True)
class Plan:
    """Every stage of a run to come, in order, and the store they are looked up in."""

    store: Path
    stages: tuple[PlannedStage, ...]
    notes: tuple[str, ...] = ()

    @property
    def missing(self) -> list[PlannedStage]:
        """The stages that would run."""
        return [stage for stage in self.stages if stage.state == "runs"]

    @property
    def size_bytes(self) -> int:
        """What they would write, as far as that is known."""
        return sum(stage.cost.size_bytes or 0 for stage in self.missing)


def plan_run(name: str, overrides: Sequence[str], store: Path | None) -> Plan:
    """What `heal run`, or for a demonstration `heal demo`, would do now."""
    path = find_config(name)
    if "demo" in read_yaml(path):
        return _plan_demo(path, overrides, store)
    config = load_heal(name, overrides)
    return plan_heal(config, command_line("run", name, set=overrides), store)


def plan_heal(config: RunConfig, command: str, store: Path | None) -> Plan:
    """What a heal of this configuration would do now."""
    runtime, planner = _planning(config.runtime, store)
    report_of(heal_story(config, runtime, command), runtime)
    return _plan_of(planner)


def _plan_demo(path: Path, overrides: Sequence[str], store: Path | None) -> Plan:
    models = {
        shipped_config(name).resolve(): model for model, name in SHIPPED_DEMOS.items()
    }
    if path.resolve() not in models:
        raise ConfigError(
            f"{path}: is a demonstration that `heal demo` does not know; plan a heal's "
            f"configuration, or one of {', '.join(SHIPPED_DEMOS.values())}"
        )
    model = models[path.resolve()]
    config = load_config(DemoConfig, path, [f"heal.{text}" for text in overrides])
    runtime, planner = _planning(config.heal.runtime, store)
    ground, told = tell_all(config, runtime)
    command = command_line("demo", model=model, set=overrides)
    for story in demo_stories(config, command, ground, told):
        report_of(story, runtime)
    return _plan_of(planner)


def _planning(config: RuntimeConfig, store: Path | None) -> tuple[Runtime, Planner]:
    lookup = open_store(store_root(store, config), keeps=False)
    planner = Planner(lookup)
    device = resolve_device(config.device)
    runtime = Runtime(
        store=lookup,
        device=device,
        head_budget_bytes=config.head_budget_mib << 20,
        placement=config.placement,
        planner=planner,
    )
    return runtime, planner


def _plan_of(planner: Planner) -> Plan:
    return Plan(planner.store.root, tuple(planner.stages), tuple(planner.notes))


def plan_json(plan: Plan) -> dict[str, Any]:
    """`{"store", "stages": [{"name", "label", "key", "state", "why", …}], "notes", …}`."""
    return {
        "store": str(plan.store),
        "stages": [asdict(stage) for stage in plan.stages],
        "notes": list(plan.notes),
        "runs": len(plan.missing),
        "size_bytes": plan.size_bytes,
        "seconds": sum(stage.cost.seconds or 0.0 for stage in plan.missing),
        "is_complete": _is_complete(plan),
    }


def _is_complete(plan: Plan) -> bool:
    """Whether the sums leave nothing out."""
    costs = [stage.cost for stage in plan.missing]
    return all(cost.size_bytes is not None and cost.seconds is not None for cost in costs)


def plan_text(plan: Plan) -> str:
    """A line a stage with its size and time, and below one that runs, why."""
    title = f"{'':10}{'stage':38}{'writes':>12}{'takes':>16}"
    lines = [f"store {plan.store}", "", title, *_rows(plan), ""]
    notes = [line for note in plan.notes for line in textwrap.wrap(note, WIDTH)]
    return "\n".join([*lines, *notes, *_ending(plan)])


def _rows(plan: Plan) -> Iterator[str]:
    groups = groupby(plan.stages, key=lambda stage: (stage.name, stage.label, stage.state))
    for (name, label, state), group in groups:
        stages = list(group)
        times = f" ×{len(stages)}" if len(stages) > 1 else ""
        title = f"{state:10}{f'{name} {label}'.rstrip() + times:38}"
        if state == "cached":
            yield title.rstrip()
            continue
        sizes = [stage.cost.size_bytes for stage in stages]
        seconds = [stage.cost.seconds for stage in stages]
        size = UNKNOWN if None in sizes else size_text(sum(filter(None, sizes)))
        time = UNKNOWN if None in seconds else duration(sum(filter(None, seconds)))
        yield f"{title}{size:>12}{time:>16}"
        why = stages[0].why + (" (the first)" if times else "")
        yield from textwrap.wrap(
            why, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT
        )


def plan_line(plan: Plan) -> str:
    """How many stages would run, and at what cost."""
    missing, every = plan.missing, len(plan.stages)
    if not missing:
        return f"all {every} stages are cached: nothing would run"
    size = plan.size_bytes
    seconds = sum(stage.cost.seconds or 0.0 for stage in missing)
    would = f"{len(missing)} of {every} stages would run"
    if not size:
        return (
            f"{would}; this store holds nothing yet to tell by what they cost, "
            "`heal doctor` times this machine"
        )
    if _is_complete(plan):
        return f"{would}: about {size_text(size)} and {duration(seconds)}"
    return f"{would}: {size_text(size)} and {duration(seconds)}, and what is unknown"


def _ending(plan: Plan) -> Iterator[str]:
    yield plan_line(plan)
    if any(stage.key is None for stage in plan.missing):
        yield from textwrap.wrap(
            "A stage that waits for another is found after all if that one writes the "
            "same bytes as before.",
            WIDTH,
        )
