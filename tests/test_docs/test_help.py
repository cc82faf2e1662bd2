"""`--help` of every command: it fits 80 columns, and nothing in it goes without a word."""

from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cmfio.cli import app as cmf_app
from flows.cli import app as heal_app

PROGRAMS = {"heal": heal_app, "cmf": cmf_app}


def commands() -> Iterator[Any]:
    """Every command of both programs, with the words that call it."""
    for name, app in PROGRAMS.items():
        yield from below(typer.main.get_command(app), [name])


def below(command: Any, words: list[str]) -> Iterator[Any]:
    yield pytest.param(words, command, id=" ".join(words))
    for name, inner in getattr(command, "commands", {}).items():
        yield from below(inner, [*words, name])


@pytest.mark.parametrize(("words", "command"), [*commands()])
def test_help_fits_80_columns_and_says_all(
    words: list[str], command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(PROGRAMS[words[0]], [*words[1:], "--help"])
    assert shown.exit_code == 0
    assert max(map(len, shown.output.splitlines())) <= 80
    silent = [p.name for p in command.params if not p.help]
    assert silent == [], f"{' '.join(words)}: no help for {silent}"
    assert (command.help or "").strip()


@pytest.mark.parametrize("program", PROGRAMS)
def test_version_is_the_installed_one(program: str) -> None:
    shown = CliRunner().invoke(PROGRAMS[program], ["--version"])
    assert (shown.exit_code, shown.output) == (
        0,
        f"mtp-heal {metadata.version('mtp-heal')}\n",
    )


@pytest.mark.parametrize(
    ("program", "typed", "found"),
    [("heal", "heal st", ["status", "store"]), ("cmf", "cmf ver", ["verify"])],
)
def test_a_shell_completes_commands(program: str, typed: str, found: list[str]) -> None:
    asked = {
        f"_{program.upper()}_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": "1",
    }
    shown = CliRunner(env=asked).invoke(PROGRAMS[program], [], prog_name=program)
    assert shown.output.split() == found
