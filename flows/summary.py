"""What a run says at its end: measures for people on stderr, for scripts as JSON."""

from typing import Any

from flows.demo import Story
from flows.gate import check_gate
from tasks.report import ReportFiles
from tasks.stage import Runtime
from ui.contents import Report
from ui.summary import summary_text


def measures_json(report: Report) -> dict[str, Any]:
    """`{"stale": {"drafts_held", "drafts_held_starts", "interval", …}, "healed": …}`."""
    return {
        name: measure.model_dump(mode="json") for name, measure in report.measures.items()
    }


def stages_json(runtime: Runtime) -> list[dict[str, Any]]:
    """Every stage call of the run, in order."""
    return [
        {"name": e.name, "key": e.key, "state": e.state, "seconds": e.seconds}
        for e in runtime.ledger.events
    ]


def demo_json(story: Story, runtime: Runtime) -> dict[str, Any]:
    """The first seed as `heal run --json` tells it, then every seed and the gate."""
    first = story.reports[0]
    seeds = [
        {
            "seed": told.seed,
            "report": str(files.page),
            "measures": measures_json(files.report),
        }
        for told, files in zip(story.told, story.reports, strict=True)
    ]
    return {
        "run": first.run,
        "report": str(first.page),
        "measures": measures_json(first.report),
        "seeds": seeds,
        "gate": [check.as_json() for check in check_gate(story.gate, _reports(story))],
        "stages": stages_json(runtime),
    }


def print_summary(files: ReportFiles, runtime: Runtime) -> None:
    """The verdict, the measures, what was reused, and where the report lies."""
    runtime.progress.say(summary_text(files.report))
    _say_stages(runtime)
    runtime.progress.say(f"report: {files.page}")


def _say_stages(runtime: Runtime) -> None:
    events = runtime.ledger.events
    cached = sum(event.state == "cached" for event in events)
    if cached == len(events):
        runtime.progress.say(f"all {cached} stages were cached: nothing had to run")
    else:
        runtime.progress.say(f"stages: {len(events) - cached} ran, {cached} cached")


def print_demo(story: Story, runtime: Runtime) -> bool:
    """The first seed's measures, then each promise; True if one was missed."""
    say = runtime.progress.say
    say(summary_text(story.reports[0].report))
    checks = check_gate(story.gate, _reports(story))
    seeds = len(story.told)
    say(
        f"promised, by the {story.gate.by}"
        + (f", mean of {seeds} seeds:" if seeds > 1 else ":")
    )
    for check in checks:
        sign = ">" if check.is_strict else "≥"
        word = "met" if check.is_met else "MISSED"
        say(f"  {check.what}: {check.found:.3f} (promised {sign} {check.least:.2f}) {word}")
    _say_stages(runtime)
    for files in story.reports:
        say(f"report: {files.page}")
    return not all(check.is_met for check in checks)


def _reports(story: Story) -> list[Report]:
    return [files.report for files in story.reports]
