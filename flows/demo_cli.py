"""`heal demo` and `heal fold`: the demonstration, and a smaller model to try it on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from conf.errors import ConfigError
from flows.command import FAILED, AsJson, Sets, StoreOption, guarded, say, tell_json
from flows.typed import command_line


def demo(
    model: Annotated[
        str, typer.Option(help="tiny (made here) or smollm2 (a real model).")
    ] = "tiny",
    *,
    overrides: Sets = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Shows the whole story: a model, its draft, a fold that makes it stale, the heal."""
    say(command_line("demo", model=model, set=overrides, store=store, json=as_json))
    guarded(lambda: _demo(model, overrides or [], store, as_json=as_json))


def fold(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A .cmf model.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folded .cmf to write.")],
    drop: Annotated[
        str, typer.Option(help="Layers to drop, counted from 0, e.g. 13,14,25.")
    ] = "",
    ffn: Annotated[
        str,
        typer.Option(
            help="Share of FFN neurons kept, e.g. 0.7: one, or one for each layer that "
            "stays; widths are rounded to multiples of 32."
        ),
    ] = "1",
    store: StoreOption = None,
) -> None:
    """Makes a smaller model: drops layers and FFN neurons, the least by weight first.

    Give --drop, --ffn or both; the draft stays as it was, and so is stale.
    """
    say(command_line("fold", model, out, drop=drop, ffn=ffn, store=store))
    guarded(lambda: _fold(model, out, drop, ffn, store))


def _demo(model: str, overrides: list[str], store: Path | None, *, as_json: bool) -> int:
    from conf.demo import SHIPPED_DEMOS, DemoConfig
    from conf.load import load_config, shipped_config

    if model not in SHIPPED_DEMOS:
        raise ConfigError(f"--model {model}: known are {', '.join(SHIPPED_DEMOS)}")
    changes = [f"heal.{text}" for text in overrides]
    config = load_config(DemoConfig, shipped_config(SHIPPED_DEMOS[model]), changes)
    from flows.demo import run_demo
    from flows.runs import recorded
    from flows.runtime import open_runtime
    from flows.summary import demo_json, print_demo
    from tasks.progress import make_progress

    runtime = open_runtime(config.heal.runtime, store, make_progress())
    runtime.progress.say(f"{config.demo.about}; {config.demo.duration}")
    command = command_line("demo", model=model, set=overrides)
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
    if not settings.folds:
        raise ConfigError(
            "heal fold: nothing would be taken away; name layers with --drop 13,14, or "
            "keep a share of the FFN neurons with --ffn 0.7"
        )
    runtime = open_runtime(RuntimeConfig(), store, make_progress())
    fold_to(model, out, settings, runtime)
    return 0
