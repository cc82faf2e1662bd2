"""`heal`: the command line. Says its first line before anything heavy is imported."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from conf.errors import ConfigError
from conf.machine import keep_freed_memory
from flows.command import (
    BAD_INPUT,
    FAILED,
    AsJson,
    ConfigName,
    Sets,
    StoreOption,
    guarded,
    say,
    tell,
    tell_json,
)
from flows.dump_cli import dump
from flows.operations_cli import Home, operations_app
from flows.store_upkeep_cli import store_app
from flows.torchrun import among_ranks
from flows.try_cli import try_model
from flows.ui_cli import ui

app = typer.Typer(
    name="heal",
    help="Retrains a stale multi-token-prediction draft on its own trunk.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

app.add_typer(store_app, name="store")
app.command()(ui)
app.command("try")(try_model)
app.command()(dump)
app.add_typer(operations_app)


@app.command()
def run(
    config: ConfigName,
    overrides: Sets = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Heals a model as a configuration says."""
    say(f"heal run {config}")
    guarded(lambda: _run(config, overrides or [], store, as_json))


@app.command()
def plan(
    config: ConfigName,
    overrides: Sets = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Tells which stages would run, why, and at what cost; runs nothing."""
    guarded(lambda: _plan(config, overrides or [], store, as_json))


@app.command()
def status(
    store: StoreOption = None,
    last: Annotated[int, typer.Option(min=1, help="How many runs, newest first.")] = 10,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Lists services and runs: how far one is, where it was cut off, why it failed."""
    guarded(lambda: _status(store, last, home, as_json))


@app.command()
def report(
    run: Annotated[
        str, typer.Argument(help="A run's id, a report's key, their beginning, or last.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the page here.")
    ] = None,
    is_opened: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Prints where a run's report page lies, or writes the page."""
    guarded(lambda: _report(run, out, is_opened, store))


@app.command()
def demo(
    model: Annotated[
        str, typer.Option(help="tiny (made here) or smollm2 (a real model).")
    ] = "tiny",
    overrides: Sets = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Shows the whole story: a model, its draft, a fold that makes it stale, the heal."""
    say(f"heal demo --model {model}")
    guarded(lambda: _demo(model, overrides or [], store, as_json))


@app.command()
def fold(
    model: Annotated[Path, typer.Argument(help="A .cmf model.")],
    out: Annotated[Path, typer.Argument(help="The folded .cmf to write.")],
    drop: Annotated[str, typer.Option(help="Layers to drop, e.g. 13,14,25.")] = "",
    ffn: Annotated[
        str,
        typer.Option(
            help="Share of FFN neurons kept: one, or one for each layer that stays."
        ),
    ] = "1",
    store: StoreOption = None,
) -> None:
    """Makes a smaller model: drops layers and FFN neurons, the least by weight first."""
    say(f"heal fold {model}")
    guarded(lambda: _fold(model, out, drop, ffn, store))


@app.command()
def doctor(
    model: Annotated[Path, typer.Argument(help="A .cmf, or a Hugging Face folder.")],
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH[@TOKENS]]...", help="Data as in a configuration."),
    ] = None,
    overrides: Sets = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Tells what would block or bias a heal; with data, probes how the draft is wired."""
    say(f"heal doctor {model}")
    guarded(lambda: _doctor(model, data or [], overrides or [], store, as_json))


def main() -> None:
    """The console script."""
    keep_freed_memory()
    among_ranks(app)


def _run(name: str, overrides: list[str], store: Path | None, as_json: bool) -> int:
    from conf.load import load_config
    from conf.schema import RunConfig

    config = load_config(RunConfig, name, overrides)
    from flows.heal import heal_recorded
    from flows.runtime import command_line, open_runtime
    from flows.summary import measures_json, print_summary, stages_json
    from tasks.progress import make_progress

    runtime = open_runtime(config.runtime, store, make_progress())
    command = command_line("run", name, overrides)
    files = heal_recorded(config, runtime, command)
    print_summary(files, runtime)
    if as_json:
        tell_json(
            {
                "run": files.run,
                "report": str(files.page),
                "measures": measures_json(files.report),
                "stages": stages_json(runtime),
            }
        )
    return 0


def _demo(model: str, overrides: list[str], store: Path | None, as_json: bool) -> int:
    from conf.demo import SHIPPED_DEMOS, DemoConfig
    from conf.load import load_config, shipped_config

    if model not in SHIPPED_DEMOS:
        raise ConfigError(f"--model {model}: known are {', '.join(SHIPPED_DEMOS)}")
    changes = [f"heal.{text}" for text in overrides]
    config = load_config(DemoConfig, shipped_config(SHIPPED_DEMOS[model]), changes)
    from flows.demo import run_demo
    from flows.runs import recorded
    from flows.runtime import command_line, open_runtime
    from flows.summary import demo_json, print_demo
    from tasks.progress import make_progress

    runtime = open_runtime(config.heal.runtime, store, make_progress())
    runtime.progress.say(f"{config.demo.about}; {config.demo.duration}")
    command = command_line("demo", f"--model {model}", overrides)
    with recorded(runtime, command, config) as recording:
        story = run_demo(config, recording.runtime, command)
        recording.reported(story.reports[0])
    missed = print_demo(story, runtime)
    if as_json:
        tell_json(demo_json(story, runtime))
    return FAILED if missed else 0


def _fold(model: Path, out: Path, drop: str, ffn: str, store: Path | None) -> int:
    from conf.demo import FoldSettings
    from conf.load import check
    from conf.schema import RuntimeConfig
    from flows.fold import fold_to
    from flows.runtime import open_runtime
    from tasks.progress import make_progress

    listed: Mapping[str, Any] = {  # checked by pydantic right here
        "drop": [part for part in drop.split(",") if part.strip()],
        "ffn": [part for part in ffn.split(",") if part.strip()],
    }
    settings = check(FoldSettings, listed, "heal fold")
    runtime = open_runtime(RuntimeConfig(), store, make_progress())
    fold_to(model, out, settings, runtime)
    return 0


def _doctor(
    model: Path, data: list[str], overrides: list[str], store: Path | None, as_json: bool
) -> int:
    from conf.load import apply_override, check
    from conf.schema import RunConfig

    raw: dict[str, Any] = {"student": str(model), "data": data}  # checked right here
    for override in overrides:
        apply_override(raw, override)
    has_data = bool(raw["data"])
    raw["data"] = raw["data"] or ["no data given"]  # a heal needs some; never opened
    config = check(RunConfig, raw, "heal doctor")
    from flows.doctor import examine
    from flows.doctor_text import examination_json, tell_examination
    from flows.runtime import open_runtime
    from tasks.progress import make_progress

    runtime = open_runtime(config.runtime, store, make_progress())
    found = examine(config, runtime, store, has_data=has_data)
    if as_json:
        tell_json(examination_json(found))
    else:
        tell_examination(found)
    return BAD_INPUT if found.blocking else 0


def _plan(name: str, overrides: list[str], store: Path | None, as_json: bool) -> int:
    from flows.plan import plan_json, plan_run, plan_text
    from store.space import refuse_little_room

    plan = plan_run(name, overrides, store)
    if as_json:
        tell_json(plan_json(plan))
    else:
        tell(plan_text(plan))
    refuse_little_room(plan.store, plan.size_bytes, "this run")
    return 0


def _status(store: Path | None, last: int, home: Path | None, as_json: bool) -> int:
    from conf.service import site_of
    from flows.operations_status import services_json, services_of, services_text
    from flows.runtime import asked_store
    from flows.status import status_json, status_text
    from store.runs import runs

    site = site_of(home, store)
    root = asked_store(store if home is None else site.store)
    services = services_of(site)
    listed = runs(root)[:last]
    if as_json:
        tell_json({**status_json(root, listed), "services": services_json(services)})
    else:
        tell(
            ("" if services is None else services_text(services))
            + status_text(root, listed)
        )
    return 0


def _report(name: str, out: Path | None, is_opened: bool, store: Path | None) -> int:
    from flows.report_page import find_page, open_page, write_page
    from flows.runtime import asked_store

    page = find_page(asked_store(store), name)
    if out is not None:
        page = write_page(page, out)
    tell(str(page))
    if is_opened:
        open_page(page)
    return 0
