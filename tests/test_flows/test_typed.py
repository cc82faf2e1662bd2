"""The line a command begins with, and lines that lack something."""

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.typed import command_line


def test_a_command_line_can_be_typed_again() -> None:
    changes = ["train.lr=1e-3", "outputs=[{codec: keep, path: x}]"]
    line = command_line("run", "my heal.yaml", set=changes, store=None, json=True, out="")
    assert line == (
        "heal run 'my heal.yaml' --set train.lr=1e-3 "
        "--set 'outputs=[{codec: keep, path: x}]' --json"
    )


@pytest.mark.parametrize(
    "line",
    [
        ["run", "no such.yaml", "--set", "a=[b, c]", "--store", "my store", "--json"],
        ["doctor", "no model.cmf", "some text@50", "--set", "train.lr=1", "--store", "s"],
        [
            "fold",
            "no model.cmf",
            "out.cmf",
            "--drop",
            "1,2",
            "--ffn",
            "0.5",
            "--store",
            "s",
        ],
        ["demo", "--model", "none such", "--set", "train.lr=1e-3"],
        ["doctor", "--store", "s", "--", "-dash.cmf", "text"],
        ["reheal", "no such.yaml", "--json"],
    ],
)
def test_the_first_line_of_a_run_has_all_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 2
    assert shlex.split(done.stderr.splitlines()[0]) == ["heal", *line]


def plain(text: str) -> str:
    """A framed complaint as one line."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["run", ""], "argument 1 of `heal run` is empty"),
        (["doctor", ""], "argument 1 of `heal doctor` is empty"),
        (["fold", "a.cmf", ""], "argument 2 of `heal fold` is empty"),
        (["store", "ls", "--store", ""], "argument 3 of `heal store` is empty"),
        (["run"], "or the name of a shipped one, as own_text. Type: heal run CONFIG"),
        (["store", "rm"], "begins, or `damaged`. Type: heal store rm NAME..."),
        (
            ["store", "export", "last"],
            "The .tar to write. Type: heal store export NAME OUT",
        ),
    ],
)
def test_what_is_missing_is_named_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 2
    assert words in plain(done.stderr)
    assert list(tmp_path.iterdir()) == []
