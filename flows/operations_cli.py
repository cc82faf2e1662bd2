"""`heal up`, `down`, `reheal`, `notify`: what keeps models healed on one machine."""

from pathlib import Path
from typing import Annotated

import typer

from flows.command import FAILED, AsJson, StoreOption, guarded, say, tell, tell_json
from flows.typed import command_line

Home = Annotated[
    Path | None,
    typer.Option("--home", help="Folder of models, data, store (else HEAL_HOME, else .)."),
]

PANEL = "Every night"
operations_app = typer.Typer(pretty_exceptions_enable=False)


@operations_app.command(rich_help_panel=PANEL)
def up(
    home: Home = None,
    store: StoreOption = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; 127.0.0.1 keeps it here.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the server; else 4200.")
    ] = None,
    database: Annotated[
        str | None, typer.Option(help="postgresql+asyncpg://…; else a SQLite file.")
    ] = None,
) -> None:
    """Starts server, pool, worker and deployments; what runs already is left alone."""
    guarded(lambda: _up(home, store, host, port, database))


@operations_app.command(rich_help_panel=PANEL)
def down(home: Home = None) -> None:
    """Stops the worker, then the server."""
    guarded(lambda: _down(home))


@operations_app.command(rich_help_panel=PANEL)
def reheal(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG", help="A YAML file with a watch list, or a shipped one's name."
        ),
    ] = "nightly",
    *,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Heals every watched model that is due, without a server; exit code 1 if one fails."""
    say(command_line("reheal", config, store=store, json=as_json))
    guarded(lambda: _reheal(config, store, as_json=as_json))


@operations_app.command(rich_help_panel=PANEL)
def notify(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The model that was just compressed.")
    ],
    url: Annotated[
        str | None, typer.Option(help="The server; else the home's, else PREFECT_API_URL.")
    ] = None,
    home: Home = None,
) -> None:
    """Tells the server that a model was compressed, which starts a re-heal at once."""
    guarded(lambda: _notify(model, url, home))


def _up(
    home: Path | None,
    store: Path | None,
    host: str | None,
    port: int | None,
    database: str | None,
) -> int:
    from dataclasses import replace

    from conf.service import site_of
    from flows.operations import as_running, start
    from store.opened import is_url
    from store.place import refuse_unmakeable

    site = site_of(home, store)
    if not is_url(str(site.store)):
        refuse_unmakeable(site.store)
    site = as_running(site)
    site = replace(site, host=host or site.host, port=port or site.port, database=database)
    start(site, say)
    tell(f"{site.url}  (stop it with: heal down --home {site.home})")
    return 0


def _down(home: Path | None) -> int:
    from conf.service import site_of
    from flows.operations import stop

    stop(site_of(home, None), say)
    return 0


def _reheal(name: str, store: Path | None, *, as_json: bool) -> int:
    from conf.load import load_config
    from conf.nightly import NightlyConfig

    config = load_config(NightlyConfig, name)
    from flows.runtime import asked_store

    asked_store(store)  # one that can't be is said once, not for every model
    from flows.reheal import BAD, outcomes_json, outcomes_text, reheal_models
    from flows.reheal_hook import tell_failures
    from tasks.progress import make_progress

    progress = make_progress()
    found = reheal_models(config, store, progress)
    tell_failures(config.on_failure, found, progress)
    if as_json:
        tell_json({"models": outcomes_json(found)})
    elif found:
        tell(outcomes_text(found))
    return FAILED if any(one.state in BAD for one in found) else 0


def _notify(model: Path, url: str | None, home: Path | None) -> int:
    from conf.service import environment_api, site_of
    from flows.operations import SERVER
    from flows.operations_api import Api
    from flows.service import Service
    from tasks.errors import InputError

    if not model.exists():
        raise InputError(f"{model}: there is no such model; give what was compressed")
    site = site_of(home, None)
    server = Service(site, SERVER).about or environment_api() or site.url
    api = Api(url or server)
    api.announce(model.absolute())
    say(f"told {api.url} that {model.absolute()} was compressed")
    return 0
