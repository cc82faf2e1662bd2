"""`heal`: the command line. Says its first line before anything heavy is imported."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cmfio.cli_words import Commands, VersionAsked
from conf.machine import keep_freed_memory
from flows.command import (
    BAD_INPUT,
    AsJson,
    ConfigName,
    Sets,
    StoreOption,
    guarded,
    say,
    tell,
    tell_json,
)
from flows.demo_cli import demo, fold
from flows.dump_cli import dump
from flows.operations_cli import Home, operations_app
from flows.store_upkeep_cli import store_app
from flows.torchrun import among_ranks
from flows.try_cli import try_model
from flows.typed import command_line
from flows.ui_cli import ui

app = typer.Typer(
    name="heal",
    cls=Commands,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

LOOK, MORE = "Looking", "Models and the store"


@app.callback()
def program(is_version_asked: VersionAsked = False) -> None:
    """Retrains a stale multi-token-prediction draft on its own trunk.

    Begin with `heal demo`, or with your own model: `heal doctor MODEL TEXT`.
    """


app.command()(demo)


@app.command()
def doctor(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A .cmf, or a Hugging Face folder.")
    ],
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH[@TOKENS]", help="Data as in a configuration."),
    ] = None,
    overrides: Sets = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Tells what would block or bias a heal; with data, probes how the draft is wired."""
    say(
        command_line(
            "doctor", model, *(data or []), set=overrides, store=store, json=as_json
        )
    )
    guarded(lambda: _doctor(model, data or [], overrides or [], store, as_json))


@app.command()
def run(
    config: ConfigName,
    overrides: Sets = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Heals a model as a configuration says."""
    say(command_line("run", config, set=overrides, store=store, json=as_json))
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


@app.command(rich_help_panel=LOOK)
def status(
    store: StoreOption = None,
    last: Annotated[int, typer.Option(min=1, help="How many runs, newest first.")] = 10,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Lists services and runs: how far one is, where it was cut off, why it failed."""
    guarded(lambda: _status(store, last, home, as_json))


@app.command(rich_help_panel=LOOK)
def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run's id or a report's key, or how it begins, else the last; "
            "`heal status` lists the runs.",
        ),
    ] = "last",
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


app.command(rich_help_panel=LOOK)(ui)
app.command("try", rich_help_panel=LOOK)(try_model)
app.command(rich_help_panel=MORE)(fold)
app.command(rich_help_panel=MORE)(dump)
app.add_typer(store_app, name="store", rich_help_panel=MORE)
app.add_typer(operations_app)


def main() -> None:
    """The console script."""
    keep_freed_memory()
    among_ranks(app)


def _run(name: str, overrides: list[str], store: Path | None, as_json: bool) -> int:
    from flows.inputs import load_heal

    config = load_heal(name, overrides)
    from flows.heal import heal_recorded
    from flows.runtime import open_runtime
    from flows.summary import measures_json, print_summary, stages_json
    from tasks.progress import make_progress

    runtime = open_runtime(config.runtime, store, make_progress())
    command = command_line("run", name, set=overrides)
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
    from store.place import refuse_read_only
    from store.space import refuse_little_room

    plan = plan_run(name, overrides, store)
    if as_json:
        tell_json(plan_json(plan))
    else:
        tell(plan_text(plan))
    if plan.missing:
        refuse_read_only(plan.store, "what this run makes")
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
