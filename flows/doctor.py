"""`heal doctor`: what would block or bias a heal, and the probe of the draft, alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmfio.errors import CmfError
from conf.base import Wiring
from conf.machine import ComputeType, describe, resolve_dtype
from conf.schema import RunConfig
from flows.ground import open_sets, pack_sets, shard_settings
from flows.plan import plan_heal, plan_line
from flows.wiring import convention, probe_start, unlike_record
from nets.errors import ModelError
from store.artifact import Artifact
from store.errors import ArtifactError
from store.space import free_bytes, size_text
from tasks.checkup import Finding, file_findings, init_findings, refusal, weights_met
from tasks.count import duration
from tasks.errors import InputError
from tasks.model_file import ModelFile, open_model, steps_of
from tasks.placement import place_trunk
from tasks.probe_text import problem_of
from tasks.shard_rows import ROWS_A_CALL
from tasks.speed import products_a_second
from tasks.stage import Runtime
from ui.verdict import LOW_COVERAGE

REFUSALS = (InputError, CmfError, ModelError, ArtifactError)
FEW_HELD_OUT = 10  # windows: below that a bootstrap over them says little


@dataclass(frozen=True)
class Examination:
    """Everything found, and the numbers of the probe, if there was one."""

    model: Path
    findings: tuple[Finding, ...]
    probe: Mapping[str, Any] | None = None

    @property
    def blocking(self) -> list[Finding]:
        """What keeps a heal from running."""
        return [one for one in self.findings if one.level == "blocks"]


def examine(
    config: RunConfig, runtime: Runtime, store: Path | None, *, has_data: bool
) -> Examination:
    """What a heal of this configuration would meet; without data, what the files tell.

    Runs the trunk over a few windows only. A path that holds no model is a finding.
    """
    student = Path(config.student)
    findings = [*_files(config, runtime)]
    is_whole = not Examination(student, tuple(findings)).blocking
    findings += _machine(config, runtime, is_whole=is_whole)
    if not has_data:
        return Examination(student, tuple(findings))
    probe, told = _data(config, runtime, store, is_whole=is_whole)
    if not is_whole:
        what = "the draft is not probed: the model can't be healed as it is"
        told.append(Finding("fact", student.name, what))
    return Examination(
        student, (*findings, *told), None if probe is None else probe.numbers
    )


def _files(config: RunConfig, runtime: Runtime) -> Iterator[Finding]:
    """The student's file, and that of `init`."""
    student = Path(config.student)
    init = None if config.init is None else Path(config.init)
    found = [*_file(student, runtime, needs_draft=config.start == "own")]
    yield from found
    if init is not None:
        told = [*_file(init, runtime, needs_draft=True)]
        yield from told
        if not any(one.level == "blocks" for one in (*found, *told)):
            yield from init_findings(student, init)


def _file(path: Path, runtime: Runtime, *, needs_draft: bool) -> list[Finding]:
    try:
        with runtime.progress.task(f"checking {path.name}", unit="bytes") as bar:
            return file_findings(path, needs_draft=needs_draft, progress=steps_of(bar))
    except CmfError as error:
        return [refusal(error, str(path))]


def _machine(config: RunConfig, runtime: Runtime, *, is_whole: bool) -> Iterator[Finding]:
    """How fast and how roomy it is here, for this trunk."""
    used = resolve_dtype(config.trunk.dtype, runtime.device)
    kinds: tuple[ComputeType, ...] = ("bf16", "f32")
    speeds = {kind: products_a_second(runtime.device, kind) / 1e9 for kind in kinds}
    said = ", ".join(f"{kind} {speed:,.0f}" for kind, speed in speeds.items())
    where = f"{describe()}; on {runtime.device}, threads {runtime.threads}"
    what = f"{where}: computes in {used}; GFLOP/s of a product: {said}"
    yield Finding("fact", "machine", what)
    free = size_text(free_bytes(runtime.store.root))
    yield Finding("fact", str(runtime.store.root), f"{free} are free for the store")
    if is_whole:
        yield _placement(config, used, runtime)


def _placement(config: RunConfig, dtype: ComputeType, runtime: Runtime) -> Finding:
    try:
        model = open_model(config.student, runtime)
        tokens = max(ROWS_A_CALL, config.pack.window)
        placing = place_trunk(model.trunk, dtype, tokens, runtime)
    except REFUSALS as error:
        return refusal(error, config.student)
    return Finding("fact", "memory", placing.text())


def _data(
    config: RunConfig, runtime: Runtime, store: Path | None, *, is_whole: bool
) -> tuple[Artifact | None, list[Finding]]:
    """Windows; of a whole model the probe on a few of them, and what a run would cost."""
    found = [*_broken_sets(config, runtime)]
    if found:
        return None, found
    try:
        model = open_model(config.student, runtime)
    except REFUSALS as error:  # of one that isn't whole its file has told
        return None, [refusal(error, "data")] if is_whole else []
    probe = None
    try:
        windows = pack_sets(model, config, open_sets(config, runtime), runtime)
        found += _windows(windows)
        if not is_whole:
            return None, found
        shard = shard_settings(model, config, windows, runtime)
        probe = probe_start(model, config, windows, shard, runtime)
        if probe is not None:
            found += _probed(probe, model, config)
        if not any(one.level == "blocks" for one in found):
            found += _cost(config, windows, runtime, store)
    except REFUSALS as error:
        found.append(refusal(error, "data"))
    return probe, found


def _broken_sets(config: RunConfig, runtime: Runtime) -> Iterator[Finding]:
    """Every data set that can't be opened, not only the first."""
    for spec in config.data:
        try:
            open_sets(config.model_copy(update={"data": (spec,)}), runtime)
        except InputError as error:
            yield refusal(error, "data")


def _windows(windows: Artifact) -> Iterator[Finding]:
    numbers = windows.numbers
    for one in numbers["sets"]:
        what = f"{one['windows']:,} windows, {one['held_out']:,} of them held out"
        yield Finding(
            "fact", f"data set {one['name']}", f"{what}; {one['tokens']:,} tokens"
        )
    held_out = int(numbers["held_out"])
    if held_out < FEW_HELD_OUT:
        what = (
            f"{held_out} windows are held out: the intervals of what is measured are wide"
        )
        yield Finding("biases", "data", what, "give more data, or a smaller pack.window")


def _probed(probe: Artifact, model: ModelFile, config: RunConfig) -> Iterator[Finding]:
    numbers, where = probe.numbers, model.path.name
    problem = problem_of(numbers)
    if problem is not None:
        what, _, todo = problem.partition("; ")
        level: Any = "blocks" if config.probe.wiring == "auto" else "biases"
        yield Finding(level, where, what, todo)
    else:
        yield from _wiring(numbers, model, config)
    for name, rate in numbers["coverage"].items():
        if rate < LOW_COVERAGE:
            yield Finding(
                "biases",
                f"data set {name}",
                f"coverage {rate:.0%}: the trunk would have written little of this text "
                "itself, so few rows count",
                "give text it writes itself: data: [{write: {prompts: …}}]",
            )
        else:
            yield Finding("fact", f"data set {name}", f"coverage {rate:.0%}")


def _wiring(
    numbers: Mapping[str, Any], model: ModelFile, config: RunConfig
) -> Iterator[Finding]:
    wiring = Wiring.model_validate(numbers["wiring"])
    where, usual = model.path.name, convention(model)
    how = "clearly" if numbers["outcome"] == "clear" else "as well as any other"
    what = f"the draft's wiring is hidden {wiring.hidden}, chain {wiring.chain}: {how}"
    yield Finding("fact", where, what + unlike_record(model, config, wiring))
    if wiring != usual:
        yield Finding(
            "biases",
            where,
            f"runtimes of this format feed a draft {usual.text}, a heal would train this "
            f"one for {wiring.text}",
            "if yours is one of them, heal it to what that reads: probe.wiring: "
            f"{{hidden: {usual.hidden}, chain: {usual.chain}}}",
        )


def _cost(
    config: RunConfig, windows: Artifact, runtime: Runtime, store: Path | None
) -> Iterator[Finding]:
    """What `heal plan` says of the whole run, and whether the disk holds it."""
    plan = plan_heal(config, "heal doctor", store)
    yield Finding("fact", "heal", plan_line(plan))
    if any(stage.name == "trunk_shard" for stage in plan.missing):
        yield from _trunk_time(config, int(windows.numbers["tokens"]), runtime)
    free = free_bytes(runtime.store.root)
    if plan.size_bytes > free:
        what = f"a heal writes {size_text(plan.size_bytes)}, {size_text(free)} are free"
        todo = "free some, choose another --store, or give fewer tokens"
        yield Finding("blocks", str(runtime.store.root), what, todo)


def _trunk_time(config: RunConfig, tokens: int, runtime: Runtime) -> Iterator[Finding]:
    """From the products alone: two operations a weight that a token meets."""
    dtype = resolve_dtype(config.trunk.dtype, runtime.device)
    weights = weights_met(Path(config.student))
    seconds = 2 * weights * tokens / products_a_second(runtime.device, dtype)
    if seconds >= 1:
        what = f"the trunk pass over {tokens:,} tokens takes {duration(seconds)} at least"
        yield Finding("fact", "heal", what)
