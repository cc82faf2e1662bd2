"""What every `heal` command shares: options, one plain sentence for errors, exit codes."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from cmfio.cli_output import printable
from conf.errors import ConfigError
from tasks.interrupt import SIGNALS, Stopped, stopping_on_signals

FAILED, BAD_INPUT = 1, 2
SIGNALED = 128  # and the signal's number, as shells have it: Ctrl-C 130, SIGTERM 143
WIDTH = 80

Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting, e.g. train.lr=1e-5; as often as you like.",
    ),
]
StoreOption = Annotated[
    Path | None,
    typer.Option("--store", help="Where artifacts lie (else HEAL_STORE, else .heal)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="End with one JSON object on stdout.")]
ConfigName = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG", help="A YAML file, or the name of a shipped one, as own_text."
    ),
]


def say(text: str) -> None:
    """Lines on stderr, there at once; what isn't printable is escaped: names are data."""
    text = "\n".join(map(printable, text.split("\n")))
    print(text, file=sys.stderr, flush=True)  # noqa: T201 — before rich is imported


def tell(text: str) -> None:
    """A result on stdout."""
    print(text, flush=True)  # noqa: T201 — what was asked for


def tell_json(value: object) -> None:
    """A result on stdout as one JSON value, for scripts."""
    tell(json.dumps(value))


def guarded(work: Callable[[], int]) -> None:
    """Runs a command; one plain sentence and an exit code for whatever a user can cause."""
    try:
        with stopping_on_signals(SIGNALS):
            code = work()
    except KeyboardInterrupt:
        say("interrupted; run the same command again, finished stages are kept")
        code = SIGNALED + SIGNALS.signal
    except Stopped as stopped:
        say(str(stopped))
        code = SIGNALED + SIGNALS.signal
    except ConfigError as error:
        code = _complain(error, BAD_INPUT)
    except Exception as error:
        known = _exit_code(error)
        if known is None:
            raise
        code = _complain(error, known)
    raise typer.Exit(code)


def _complain(error: Exception, code: int) -> int:
    below = getattr(error, "below", "")
    say(f"error: {printable(str(error).removesuffix(below).rstrip())}")
    if below:
        say(below)
    return code


def _exit_code(error: Exception) -> int | None:
    """2 for input a user can mend, 1 for a failure that says why, None for a defect."""
    from cmfio.errors import CmfError
    from nets.errors import ModelError
    from store.errors import ArtifactError, BadBundle, NotAStore, UnknownName
    from tasks.errors import InputError, RankLost, RunnerError

    mendable = InputError | CmfError | ModelError | UnknownName | BadBundle | NotAStore
    if isinstance(error, mendable):
        return BAD_INPUT
    return FAILED if isinstance(error, ArtifactError | RankLost | RunnerError) else None
