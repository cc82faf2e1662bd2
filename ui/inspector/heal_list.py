"""Every heal of a store as one row each: what was asked, how it ended, what it held."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import yaml

from store.nearest import flat_settings
from store.runs import Run
from ui.contents import Report
from ui.figures import duration
from ui.inspector.depot import Damaged, Depot, NotHere

HealState = Literal["running", "done", "cached", "interrupted", "failed", "damaged", "gone"]
NOTE_CHARACTERS = 140
# libyaml where it is: a configuration costs 0.5 ms with it and 6 without.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # two classes, one face


@dataclass(frozen=True)
class Asked:
    """What a run's configuration says, as far as a list shows it."""

    title: str
    data: tuple[str, ...]
    layout: str
    loss: str
    # All of the configuration, by dotted name, spelled.
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Heal:
    """A run with its report; a report whose run is in no book stands alone."""

    id: str
    state: HealState
    note: str
    asked: Asked
    command: str
    config: str
    started: datetime
    took_s: float | None
    run: Run | None
    report_key: str | None
    report: Report | None = field(repr=False)

    @property
    def short(self) -> str:
        """`92de` of a run, the head of its key of a lone report."""
        return self.id[:8] if self.run is None else self.id.rpartition("-")[2]

    @property
    def gain(self) -> float | None:
        """Drafts held, healed − stale."""
        return (
            None
            if self.report is None or self.report.gain is None
            else self.report.gain.value
        )

    @property
    def held(self) -> float | None:
        """Drafts held of the healed draft."""
        healed = None if self.report is None else self.report.measures.get("healed")
        return None if healed is None else healed.drafts_held


class HealBook:
    """The heals of a depot; configurations are read once."""

    def __init__(self, depot: Depot) -> None:
        self.depot = depot
        self._asked: dict[str, Asked] = {}

    def heals(self) -> list[Heal]:
        """Newest first, runs and lone reports."""
        runs = self.depot.runs()
        told = {run.record.report for run in runs}
        found = [self._of_run(run) for run in runs]
        found += [heal for heal in self._lone() if f"report/{heal.report_key}" not in told]
        return _with_origins(sorted(found, key=lambda heal: heal.started, reverse=True))

    def heal(self, name: str) -> Heal:
        """The heal of a run's id or of a report's key. NotHere."""
        for run in self.depot.runs():
            if run.record.id == name:
                return self._of_run(run)
        for heal in self._lone():
            if heal.report_key == name:
                return heal
        raise NotHere(
            f"No run or report is called {name}; the list of heals has their names."
        )

    def _lone(self) -> Iterator[Heal]:
        for entry in self.depot.entries():
            if entry.stage == "report" and entry.manifest is not None:
                report, why = self._report(entry.key)
                settings = entry.manifest.settings
                config = str(settings.get("config", ""))
                yield Heal(
                    id=entry.key, state="done" if report else "damaged", note=why,
                    asked=self._ask(entry.key, config, str(settings.get("title", ""))),
                    command=str(settings.get("command", "")), config=config,
                    started=_time(entry.manifest.started), took_s=None, run=None,
                    report_key=entry.key, report=report,
                )  # fmt: skip

    def _of_run(self, run: Run) -> Heal:
        record = run.record
        key = record.report.partition("/")[2] if record.report else None
        report, why = self._report(key) if key else (None, "")
        asked = self._ask(record.id, record.config, record.command)
        if report is not None:
            asked = replace(asked, title=report.title)
        state, note = _state(run, report, why)
        return Heal(
            id=record.id, state=state, note=note, asked=asked, command=record.command,
            config=record.config, started=_time(record.started), took_s=_took(run), run=run,
            report_key=key, report=report,
        )  # fmt: skip

    def _report(self, key: str) -> tuple[Report | None, str]:
        try:
            return self.depot.report(key), ""
        except NotHere:
            return None, "its report was removed since"
        except Damaged as error:
            return None, str(error)

    def _ask(self, name: str, config: str, fallback: str) -> Asked:
        if name not in self._asked:
            self._asked[name] = asked_for(config, fallback)
        return self._asked[name]


def asked_for(config: str, fallback: str) -> Asked:
    """The student, data, layout and loss of a configuration's YAML, hostile or not."""
    try:
        said = yaml.load(config, Loader=_LOADER)
    except yaml.YAMLError:
        said = None
    whole = said if isinstance(said, dict) else {}
    if isinstance(whole.get("heal"), dict):  # a demo's
        whole = {**whole["heal"], "student": whole["heal"].get("student") or "demo"}
    train = whole.get("train")
    student, data = whole.get("student"), whole.get("data")
    return Asked(
        title=Path(student).stem if isinstance(student, str) and student else fallback,
        data=tuple(_set_name(one) for one in data) if isinstance(data, list) else (),
        layout=_word(train, "layout"),
        loss=_word(train, "loss"),
        settings=_spelled(said) if isinstance(said, dict) else {},
    )


def _spelled(whole: dict[object, object]) -> dict[str, str]:
    """Every setting by its dotted name; none of a configuration that holds itself."""
    try:
        pairs = flat_settings(whole).items()  # type: ignore[arg-type]  # as YAML has it
        return {
            name.removeprefix("heal."): value
            if isinstance(value, str)
            else json.dumps(value, default=str)
            for name, value in pairs
        }
    except (ValueError, RecursionError):
        return {}


def _with_origins(heals: list[Heal]) -> list[Heal]:
    """Cached heals name the run whose work they show, if the book still has it."""
    made = {heal.report_key: heal.short for heal in heals if heal.state == "done"}
    return [
        replace(heal, note=f"same as {made[heal.report_key]}")
        if heal.state == "cached" and heal.report_key in made
        else heal
        for heal in heals
    ]


def _word(settings: object, name: str) -> str:
    value = settings.get(name) if isinstance(settings, dict) else None
    return value if isinstance(value, str) else ""


def _set_name(one: object) -> str:
    if isinstance(one, dict):
        named = one.get("name") or one.get("path") or "data"
        return Path(str(named)).stem if one.get("name") is None else str(named)
    return Path(str(one)).stem


def _state(run: Run, report: Report | None, why: str) -> tuple[HealState, str]:
    if run.state == "running":
        return "running", doing(run)
    if run.state == "failed":
        return "failed", short_reason(run.record.error or "no reason was written down")
    if run.state == "interrupted":
        said = short_reason(run.record.error or doing(run)).partition(";")[0]
        return "interrupted", f"{said}; resumes"
    if run.record.report is not None and report is None:
        return ("gone" if why.startswith("its report") else "damaged"), short_reason(why)
    events = run.record.events
    if events and all(event.state == "cached" for event in events):
        return "cached", "all from the store"
    reused = sum(event.state == "cached" for event in events)
    return "done", f"{reused} of {len(events)} stages reused" if reused else ""


def doing(run: Run) -> str:
    """What a run is doing, or was last known to do."""
    filling, events, progress = run.record.filling, run.record.events, run.progress
    stage = f"{filling[-1].name} {filling[-1].label}".strip() if filling else ""
    since = filling[-1].since if filling else 0.0
    if progress is not None and float(progress.get("at", 0.0)) >= since:
        done, total = progress.get("done"), progress.get("total")
        of = f" of {total:,}" if isinstance(total, int) else ""
        count = (
            f", {progress.get('unit', '')} {done:,}{of}" if isinstance(done, int) else ""
        )
        return f"{stage or progress.get('task', '')}{count}"
    if stage:
        return stage
    return f"after {events[-1].name}" if events else "before its first stage"


def short_reason(text: str) -> str:
    """The first line, cut after a word where it is long."""
    line = text.strip().splitlines()[0] if text.strip() else ""
    if len(line) <= NOTE_CHARACTERS:
        return line
    head = line[:NOTE_CHARACTERS]
    return f"{(head.rpartition(' ')[0] or head).rstrip(' ,;:')} …"


def _took(run: Run) -> float | None:
    ended = run.record.ended
    if ended is None:
        return None
    return max((_time(ended) - _time(run.record.started)).total_seconds(), 0.0)


def _time(iso: str) -> datetime:
    try:
        time = datetime.fromisoformat(iso)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def took_text(seconds: float | None) -> str:
    """`41 min`, `–` where nobody knows."""
    return "–" if seconds is None else duration(seconds)
