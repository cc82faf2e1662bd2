"""report: one self-contained page and its JSON, from what the stages of a heal measured."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from conf.base import Settings
from conf.machine import describe
from conf.schema import Cost, RunConfig, StartKind
from nets.hold import HoldArrays, count_walk, drafts_held, paired_gain_se
from store.artifact import Artifact
from store.ledger import StageEvent
from store.tables import read_table
from tasks.measure import read_holds
from tasks.model_file import ModelFile
from tasks.packed import held_out_copies
from tasks.stage import Runtime, stage
from tasks.time_decode import cost_of, timing_of
from ui.contents import (
    CodecRow,
    Difference,
    Measure,
    Probe,
    Report,
    StageRow,
    Training,
    TrainingRow,
)
from ui.report import render, report_json

PAGE, DATA = "report.html", "report.json"


@dataclass(frozen=True)
class Written:
    """One output: its codec, as asked and as shown, the file, its measure, the model."""

    codec: str
    shown: str
    file: Artifact
    measure: Artifact
    model: ModelFile


@dataclass(frozen=True)
class Healed:
    """A heal's results: the draft before, the trained one, and the files that carry it.

    Without training `trained` is None, and files carry the draft as it started. `timing` is
    what a round costs on this machine, where that was asked for.
    """

    stale: Artifact
    trained: Artifact | None
    outputs: tuple[Written, ...]
    timing: Artifact | None = None


@dataclass(frozen=True)
class HealStory:
    """All a report tells; `measures` by name of draft (stale, healed, …)."""

    config: RunConfig
    command: str
    windows: Artifact
    rows: Artifact
    probe: Artifact | None
    healed: Healed
    measures: Mapping[str, Artifact]


@dataclass(frozen=True)
class ReportFiles:
    """The run's id, its page, and the report as data."""

    run: str
    page: Path
    report: Report


@dataclass(frozen=True)
class HealReport:
    """What a heal gave its caller: measures, paths, and its stage calls in order.

    `page` is report.html; `outputs` the files and folders written, as configured.
    """

    run: str
    page: Path
    report: Report
    outputs: tuple[Path, ...]
    stages: tuple[StageEvent, ...]

    @property
    def measures(self) -> Mapping[str, Measure]:
        """By draft: `stale` before, `healed` after."""
        return {str(name): one for name, one in self.report.measures.items()}


class ReportSettings(Settings):
    """How the run is told: its title, its command, its configuration, the user's costs.

    `cost` is None where it was timed.
    """

    title: str
    command: str
    config: str
    start: StartKind
    cost: Cost | None
    stages: tuple[StageRow, ...]


@stage("report", version=8)
def report(  # noqa: PLR0913 — a stage's inputs, each with a digest of its own
    out: Path,
    settings: ReportSettings,
    runtime: Runtime,
    *,
    windows: Artifact,
    trained: Artifact | None,
    probe: Artifact | None,
    timing: Artifact | None,
    measures: Mapping[str, Artifact],
    files: Mapping[str, Artifact],
    codecs: Mapping[str, Artifact],
) -> Mapping[str, object]:
    """`report.html` and `report.json`."""
    story = _Parts(windows, trained, probe, timing, measures, files, codecs)
    told = _tell(settings, story)
    (out / PAGE).write_text(render(told), encoding="utf-8")
    (out / DATA).write_text(report_json(told), encoding="utf-8")
    return {"title": settings.title}


def write_report(story: HealStory, runtime: Runtime) -> ReportFiles:
    """The report of a heal, cached like everything else."""
    artifact = report_of(story, runtime)
    data = (artifact.path / DATA).read_text(encoding="utf-8")
    return ReportFiles(artifact.key, artifact.path / PAGE, Report.model_validate_json(data))


def report_of(story: HealStory, runtime: Runtime) -> Artifact:
    """The artifact of a heal's report."""
    cost = story.config.measure.cost
    settings = ReportSettings(
        title=Path(story.config.student).stem,
        command=story.command,
        start=story.config.start,
        cost=None if cost == "timed" else cost,
        config=yaml.safe_dump(story.config.model_dump(mode="json"), sort_keys=False),
        stages=_stage_rows(story),
    )
    return report(
        settings,
        runtime,
        windows=story.windows,
        trained=story.healed.trained,
        probe=story.probe,
        timing=story.healed.timing,
        measures=dict(story.measures),
        files={one.shown: one.file for one in story.healed.outputs},
        codecs={one.shown: one.measure for one in story.healed.outputs},
    )


@dataclass(frozen=True)
class _Parts:
    windows: Artifact
    trained: Artifact | None
    probe: Artifact | None
    timing: Artifact | None
    measures: Mapping[str, Artifact]
    files: Mapping[str, Artifact]
    codecs: Mapping[str, Artifact]


def _tell(settings: ReportSettings, parts: _Parts) -> Report:
    gain, gain_by_set = _gains(parts)
    return Report(
        title=settings.title,
        made=datetime.now(UTC),
        start=settings.start,
        depth=int(parts.measures["stale"].numbers["depth"]),
        measures={name: _measure(one) for name, one in parts.measures.items()},
        gain=gain,
        gain_by_set=gain_by_set,
        held_out_copies=held_out_copies(parts.windows),
        training=None if parts.trained is None else _training(parts.trained),
        probe=None if parts.probe is None else _probe(parts.probe),
        codecs=_codecs(parts),
        provenance=_provenance(parts),
        cost=settings.cost or cost_of(parts.timing),
        timing=None if parts.timing is None else timing_of(parts.timing),
        command=settings.command,
        config=settings.config,
        stages=settings.stages,
        machine={"machine": describe(), "python": platform.python_version()},
        run=(parts.trained or parts.measures["stale"]).key,
    )


def _measure(artifact: Artifact) -> Measure:
    wanted = Measure.model_fields.keys()
    return Measure.model_validate(
        {k: v for k, v in artifact.numbers.items() if k in wanted}
    )


def _difference(new: HoldArrays, old: HoldArrays) -> Difference:
    """Of drafts held by the walk, on the same windows in the same order."""
    walks = count_walk(new), count_walk(old)
    return Difference(
        value=drafts_held(walks[0]) - drafts_held(walks[1]),
        se=paired_gain_se(*walks),
        windows=len(new.length_W),
    )


def _gains(parts: _Parts) -> tuple[Difference | None, dict[str, Difference]]:
    """Healed − stale over all windows, then by data set; none without both."""
    if not {"stale", "healed"} <= parts.measures.keys():
        return None, {}
    new, old = (read_holds(parts.measures[name]) for name in ("healed", "stale"))
    names: Sequence[str] = parts.windows.manifest.settings["names"]
    by_set = {
        name: _difference(new.of_set(i), old.of_set(i))
        for i, name in enumerate(names)
        if (new.set_index_W == i).any()
    }
    return _difference(new, old), by_set


def _training(trained: Artifact) -> Training:
    log = read_table(trained.path / "log.arrow")
    log = log.select([n for n in log.column_names if n in TrainingRow.model_fields])
    return Training(
        rows=tuple(TrainingRow.model_validate(row) for row in log.to_pylist()),
        chosen_step=int(trained.numbers["best_step"]),
        skipped=int(trained.numbers["skipped"]),
    )


def _probe(probe: Artifact) -> Probe:
    wiring: Mapping[str, str] = probe.numbers["wiring"]
    told = {k: v for k, v in probe.numbers.items() if k in Probe.model_fields}
    return Probe.model_validate({**told, **wiring})


def _codecs(parts: _Parts) -> tuple[CodecRow, ...]:
    keep = parts.codecs.get("keep")
    kept = None if keep is None else read_holds(keep)
    rows = []
    for codec, artifact in parts.codecs.items():
        paired = None
        if kept is not None and codec != "keep":
            paired = _difference(read_holds(artifact), kept)
        rows.append(
            CodecRow(
                codec=codec,
                draft_bytes=int(parts.files[codec].numbers["draft_bytes"]),
                file_bytes=int(parts.files[codec].numbers["bytes"]),
                drafts_held=artifact.numbers["drafts_held"],
                interval=artifact.numbers["interval"],
                to_keep=paired,
            )
        )
    return tuple(rows)


def _provenance(parts: _Parts) -> dict[str, Any]:
    for file in parts.files.values():
        return dict(file.manifest.settings["provenance"])
    return {}


def _stage_rows(story: HealStory) -> tuple[StageRow, ...]:
    """Every artifact the report rests on, once, in the order they were made."""
    healed = story.healed
    maybe = (story.windows, story.rows, story.probe, healed.timing, healed.trained)
    listed = [one for one in maybe if one is not None]
    listed += story.measures.values()
    for one in healed.outputs:
        listed += [one.file, one.measure]
    unique = {artifact.name: artifact for artifact in listed}
    ordered = sorted(unique.values(), key=lambda artifact: artifact.manifest.started)
    return tuple(
        StageRow(
            name=artifact.stage,
            key=artifact.key,
            state="resumed" if artifact.manifest.resumed else "ran",
            seconds=artifact.manifest.seconds,
        )
        for artifact in ordered
    )
