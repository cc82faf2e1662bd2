"""`heal`: the command line. Says its first line before anything heavy is imported."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from conf.errors import ConfigError

app = typer.Typer(
    name="heal",
    help="Retrains a stale multi-token-prediction draft on its own trunk.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130

Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a setting, e.g. train.lr=1e-5."
    ),
]
StoreOption = Annotated[
    Path | None,
    typer.Option("--store", help="Where artifacts lie (else HEAL_STORE, else .heal)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="End with one JSON object on stdout.")]


@app.command()
def run(
    config: Annotated[
        str, typer.Argument(help="A YAML file, or the name of a shipped one.")
    ],
    overrides: Sets = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Heals a model as a configuration says."""
    _first_line(f"heal run {config}")
    guarded(lambda: _run(config, overrides or [], store, as_json))


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
    _first_line(f"heal demo --model {model}")
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
    _first_line(f"heal fold {model}")
    guarded(lambda: _fold(model, out, drop, ffn, store))


def main() -> None:
    """The console script."""
    app()


def _first_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 — before rich is imported


def guarded(work: Callable[[], int]) -> None:
    """Runs a command; one plain sentence and an exit code for whatever a user can cause."""
    try:
        code = work()
    except KeyboardInterrupt:
        _first_line("interrupted; run the same command again, finished stages are kept")
        code = INTERRUPTED
    except ConfigError as error:
        code = _complain(error, BAD_INPUT)
    except Exception as error:
        known = _exit_code(error)
        if known is None:
            raise
        code = _complain(error, known)
    raise typer.Exit(code)


def _complain(error: Exception, code: int) -> int:
    _first_line(f"error: {error}")
    return code


def _exit_code(error: Exception) -> int | None:
    """2 for input a user can mend, 1 for a failure that says why, None for a defect."""
    from cmfio.errors import CmfError
    from nets.errors import ModelError
    from store.errors import ArtifactError
    from tasks.errors import InputError

    if isinstance(error, InputError | CmfError | ModelError):
        return BAD_INPUT
    return FAILED if isinstance(error, ArtifactError) else None


def _run(name: str, overrides: list[str], store: Path | None, as_json: bool) -> int:
    from conf.load import load_config
    from conf.schema import RunConfig

    config = load_config(RunConfig, name, overrides)
    from flows.heal import heal_model
    from flows.runtime import command_line, open_runtime
    from flows.summary import measures_json, print_summary, stages_json
    from tasks.progress import make_progress

    runtime = open_runtime(config.runtime, store, make_progress())
    files = heal_model(config, runtime, command_line("run", name, overrides))
    print_summary(files, runtime)
    if as_json:
        _print_json(
            {
                "run": files.run,
                "report": str(files.page),
                "measures": measures_json(files.report),
                "stages": stages_json(runtime),
            }
        )
    return 0


def _demo(model: str, overrides: list[str], store: Path | None, as_json: bool) -> int:
    from conf.demo import DemoConfig
    from conf.load import load_config

    configs = {"tiny": "demo", "smollm2": "smollm2"}
    if model not in configs:
        raise ConfigError(f"--model {model}: known are {', '.join(configs)}")
    config = load_config(DemoConfig, configs[model], [f"heal.{text}" for text in overrides])
    from flows.demo import run_demo
    from flows.runtime import command_line, open_runtime
    from flows.summary import demo_json, print_demo
    from tasks.progress import make_progress

    runtime = open_runtime(config.heal.runtime, store, make_progress())
    runtime.progress.say(f"{config.demo.about}; {config.demo.duration}")
    story = run_demo(config, runtime, command_line("demo", f"--model {model}", overrides))
    missed = print_demo(story, runtime)
    if as_json:
        _print_json(demo_json(story, runtime))
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


def _print_json(value: Mapping[str, object]) -> None:
    print(json.dumps(value))  # noqa: T201 — what a script reads
