"""What every room keeps to: small files, small functions, a word on who lives there."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
ROOMS = [
    "bench",
    "cmfio",
    "conf",
    "flows",
    "nets",
    "store",
    "tasks",
    "ui",
    "tests",
    "deploy",
]
WRITTEN = {".py", ".css", ".js", ".html", ".j2", ".c"}
FILE_LINES, FUNCTION_LINES = 300, 50


def files(room: str) -> list[Path]:
    return [path for path in sorted((HOME / room).rglob("*")) if path.suffix in WRITTEN]


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or 0) - node.lineno + 1


def word_of(room: str) -> str:
    package, page = HOME / room / "__init__.py", HOME / room / "README.md"
    if package.exists():
        return ast.get_docstring(ast.parse(package.read_text())) or ""
    return page.read_text()


@pytest.mark.parametrize("room", ROOMS)
def test_no_file_and_no_function_outgrows_a_look(room: str) -> None:
    lines = {path: len(path.read_text().splitlines()) for path in files(room)}
    assert {str(path): n for path, n in lines.items() if n > FILE_LINES} == {}
    long = [
        f"{path}: {name} has {n} lines"
        for path in lines
        if path.suffix == ".py"
        for name, n in functions(path)
        if n > FUNCTION_LINES
    ]
    assert long == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_may_live_there_and_what_may_not(room: str) -> None:
    word = " ".join(word_of(room).split())
    assert "Not here: " in word
