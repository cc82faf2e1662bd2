"""The nightly re-heal: every watched model that is due, one after the other."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from conf.nightly import NightlyConfig
from conf.schema import RunConfig, RuntimeConfig
from flows.inputs import load_heal
from flows.reheal_list import Student, is_watched, students, unmatched, why_due
from flows.runtime import open_runtime
from flows.typed import command_line
from tasks.errors import InputError
from tasks.interrupt import Stopped
from tasks.progress import Progress

if TYPE_CHECKING:
    from tasks.report import HealStory

OutcomeState = Literal["up to date", "healed", "kept back", "failed"]
BAD: tuple[OutcomeState, ...] = ("kept back", "failed")


@dataclass(frozen=True)
class Outcome:
    """What came of one watched model; drafts held per round before and after its heal."""

    model: Path
    state: OutcomeState
    why: str
    out: Path
    before: float | None = None
    after: float | None = None
    report: Path | None = None

    @property
    def change(self) -> str:
        """`1.01 → 2.05`, or nothing where it was not healed."""
        if self.before is None or self.after is None:
            return ""
        return f"{self.before:.2f} → {self.after:.2f}"


class RehealFailed(Exception):  # noqa: N818 — it is the run that failed
    """Not every watched model has a healed draft that may go out; says which and why."""


def reheal_models(
    config: NightlyConfig,
    store: Path | None,
    progress: Progress,
    announced: str | None = None,
) -> list[Outcome]:
    """Heals each watched model that is due; one that fails does not stop the others.

    `announced` is a model somebody told of, which is said if nothing watches it.
    """
    if announced and not is_watched(config, announced):
        progress.say(f"{announced} was announced, but no watch entry covers it")
    listed = students(config)
    for pattern in unmatched(config, listed):
        progress.say(
            f"no model matches {pattern} in {Path.cwd()}; `watch` says where models lie"
        )
    found = [_tended(one, store, progress) for one in listed]
    if listed and all(one.state == "up to date" for one in found):
        progress.say(f"nothing is due: all {len(found)} have the draft of their trunk")
    return found


def _tended(student: Student, store: Path | None, progress: Progress) -> Outcome:
    try:
        looking = open_runtime(RuntimeConfig(), store, progress)
        why = why_due(student, looking)
        if why is None:
            return Outcome(student.model, "up to date", "", student.out)
        progress.say(f"{student.model}: due, {why}")
        return _healed(student, why, store, progress)
    except Stopped:
        raise
    except Exception as error:  # noqa: BLE001 — whatever it is, the other models go on
        said = str(error) or type(error).__name__
        progress.say(f"{student.model}: failed: {said}")
        return Outcome(student.model, "failed", said, student.out)


def config_of(student: Student) -> tuple[RunConfig, str]:
    """How a model is healed: its watch entry's configuration; and the same by hand."""
    watch = student.watch
    output = {"codec": watch.codec, "path": str(student.out)}
    changes = [
        *watch.overrides,
        f"student={json.dumps(str(student.model))}",
        f"outputs={json.dumps([output])}",
    ]
    config = load_heal(watch.conf, changes)
    return config, command_line("run", watch.conf, set=changes)


def _healed(student: Student, why: str, store: Path | None, progress: Progress) -> Outcome:
    from flows.heal import heal_story
    from flows.outputs import publish_outputs, targets_of
    from flows.runs import recorded
    from tasks.report import write_report

    config, command = config_of(student)
    if not config.train.trains:
        raise InputError(
            f"{student.watch.conf}: train.epochs is 0, which only measures: there would be "
            "nothing to publish; give it epochs or steps, or take the watch entry out"
        )
    runtime = open_runtime(config.runtime, store, progress)
    with recorded(runtime, command, config) as recording:
        story = heal_story(config, recording.runtime, command)
        before, after = held(story, "stale"), held(story, "healed")
        good = after >= before + student.watch.least_gain
        if good:
            publish_outputs(story.healed, targets_of(config), recording.runtime)
        files = write_report(story, recording.runtime)
        recording.reported(files)
    if not good:
        least = student.watch.least_gain
        why = f"gained {after - before:+.3f}, at least {least:+.3f} is asked: not published"
    state: OutcomeState = "healed" if good else "kept back"
    return Outcome(student.model, state, why, student.out, before, after, files.page)


def held(story: "HealStory", draft: str) -> float:
    """Drafts held per round by one of a story's drafts."""
    return float(story.measures[draft].numbers["drafts_held"])


def refuse_failures(found: Sequence[Outcome]) -> None:
    """RehealFailed, with the table, if a model failed or was kept back."""
    bad = [one for one in found if one.state in BAD]
    if bad:
        raise RehealFailed(
            f"{len(bad)} of {len(found)} models were not healed\n{outcomes_text(found)}"
        )


def outcomes_text(found: Sequence[Outcome]) -> str:
    """A line for each model: what came of it, before → after, why."""
    cells = [(str(one.model), one.state, one.change, one.why) for one in found]
    widths = [max((len(row[i]) for row in cells), default=0) for i in range(3)]
    lines = []
    for row in cells:
        padded = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*padded, row[3]]).rstrip())
    return "\n".join(lines)


def outcomes_json(found: Sequence[Outcome]) -> list[dict[str, Any]]:
    """`[{"model", "state", "why", "out", "before", "after", "report"}]`."""
    return [
        {
            "model": str(one.model),
            "state": one.state,
            "why": one.why,
            "out": str(one.out),
            "before": one.before,
            "after": one.after,
            "report": None if one.report is None else str(one.report),
        }
        for one in found
    ]
