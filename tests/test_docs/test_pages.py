"""What README and docs say can be typed is there: commands, settings, names, links."""

import ast
import importlib.util
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from cmfio.cli import app as cmf_app
from conf.load import apply_override, check
from conf.nightly import NightlyConfig
from conf.schema import RunConfig
from flows.cli import app as heal_app
from tests.test_docs import blocks
from tests.test_docs.blocks import Block

BLOCKS = blocks.all_blocks()
PROGRAMS = {"heal": heal_app, "cmf": cmf_app}


def of(*languages: str) -> list[Any]:
    """Blocks in these languages, as parameters named by their place."""
    return [pytest.param(b, id=b.place) for b in BLOCKS if b.language in languages]


def test_every_block_is_in_a_language_that_is_checked_or_only_told() -> None:
    odd = {b.place: b.language for b in BLOCKS}
    known = {"sh", "python", "yaml", *blocks.TOLD}
    assert {place: word for place, word in odd.items() if word not in known} == {}


@pytest.mark.parametrize("block", of("sh"))
def test_commands_and_options_are_those_of_the_programs(block: Block) -> None:
    for words in blocks.commands_in(block.text):
        assert unknown_in(words) is None, f"{block.place}: {' '.join(words)}"


@pytest.mark.parametrize("path", blocks.pages(), ids=lambda p: p.name)
def test_commands_in_prose_are_those_of_the_programs(path: Path) -> None:
    spans = re.findall(r"`((?:heal|cmf|make) [^`·]+)`", blocks.prose_of(path))
    for command in (part for span in spans for part in span.split(" && ")):
        for words in spelled_out(command):
            assert unknown_in(words) is None, f"{path.name}: `{command}`"


def spelled_out(span: str) -> list[list[str]]:
    """`heal up|down --x` as two commands; brackets of a usage line are left out."""
    words = re.sub(r"[\[\]…]", " ", span).split()
    names = words[1].split("|") if "|" in words[1] else [words[1]]
    return [[words[0], name, *words[2:]] for name in names]


@cache
def program(name: str) -> Any:
    """The click command of one of our programs; click's types are not typer's to tell."""
    return typer.main.get_command(PROGRAMS[name])


def unknown_in(words: Sequence[str]) -> str | None:
    """The first word of a command that nothing here answers to."""
    if not words:
        return None
    name, *rest = words
    if name in PROGRAMS:
        return unknown_option(program(name), rest)
    if name == "make":
        return next((w for w in rest if "=" not in w and w not in targets()), None)
    if name.startswith("python") and rest[:1] == ["-m"]:
        return None if importlib.util.find_spec(rest[1]) else rest[1]
    return None


def unknown_option(command: Any, rest: Sequence[str]) -> str | None:
    known = {option for p in command.params for option in p.opts} | {"--help"}
    for place, word in enumerate(rest):
        if word.startswith("-") and word.partition("=")[0] not in known:
            return word
        if not word.startswith("-") and hasattr(command, "commands"):
            inner = command.commands.get(word)
            return word if inner is None else unknown_option(inner, rest[place + 1 :])
    return None


@cache
def targets() -> frozenset[str]:
    text = (blocks.ROOT / "Makefile").read_text()
    return frozenset(re.findall(r"^([a-z][\w-]*):", text, re.MULTILINE))


@pytest.mark.parametrize("block", of("sh"))
def test_settings_on_command_lines_are_settings(block: Block) -> None:
    for words in blocks.commands_in(block.text):
        texts = [words[i + 1] for i, w in enumerate(words) if w == "--set"]
        if texts and words[0] == "heal":
            accept({}, texts)


@pytest.mark.parametrize("block", of("yaml"))
def test_yaml_is_a_configuration_or_part_of_one(block: Block) -> None:
    accept(yaml.safe_load(block.text), [])


@pytest.mark.parametrize("block", of("sh"))
def test_yaml_written_by_a_shell_is_a_configuration(block: Block) -> None:
    for name, text in blocks.files_written(block.text).items():
        if name.endswith(".yaml"):
            accept(yaml.safe_load(text), [])


def accept(raw: dict[str, Any], overrides: Sequence[str]) -> None:
    """Raises ConfigError unless these settings, with a student and data, are a heal's."""
    if "watch" in raw:
        check(NightlyConfig, raw, "a nightly")
        return
    whole = {"student": "model.cmf", "data": ["text/"]} | raw
    for text in overrides:
        apply_override(whole, text)
    check(RunConfig, whole, "a heal")


@pytest.mark.parametrize("block", of("python"))
def test_python_parses_and_imports_names_that_are_there(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            missing = [a.name for a in node.names if not hasattr(module, a.name)]
            assert missing == [], f"{block.place}: {node.module} has no {missing}"


@pytest.mark.parametrize("path", blocks.pages(), ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", blocks.prose_of(path)):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        assert page.exists(), f"{path.name}: {target}"
        if anchor:
            assert anchor in anchors(page), f"{path.name}: {target}"


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as Git hosts make them."""
    headings = re.findall(r"^#+ (.+)$", blocks.prose_of(page), re.MULTILINE)
    bare = [re.sub(r"[^\w\- ]", "", h.lower().replace("`", "")) for h in headings]
    return {text.replace(" ", "-") for text in bare}


@pytest.mark.parametrize("path", blocks.pages(), ids=lambda p: p.name)
def test_files_that_a_page_names_are_there(path: Path) -> None:
    named = re.findall(
        r"`((?:bench|cmfio|conf|deploy|docs|flows|nets|store|tasks|tests|ui)/[\w/.-]*)`",
        blocks.prose_of(path),
    )
    assert [name for name in named if not (blocks.ROOT / name).exists()] == []


def test_every_page_is_in_the_index() -> None:
    index = (blocks.ROOT / "docs/README.md").read_text()
    linked = {t.partition("#")[0] for t in re.findall(r"\]\(([^)\s]+)\)", index)}
    there = {p.name for p in (blocks.ROOT / "docs").glob("*.md")} - {"README.md"}
    assert there - linked == set()


def test_a_block_of_commands_has_its_reason_above_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "a\n\n<!-- not run: needs a card -->\n```sh\nheal up\n```\n```sh\nls\n```\n"
    )
    first, second = blocks.blocks_of(page)
    assert (first.reason, first.line, first.text) == ("needs a card", 4, "heal up\n")
    assert (second.reason, second.language) == (None, "sh")


def test_words_that_no_program_knows_are_found() -> None:
    text = (
        "X=1 .venv/bin/heal store ls --deep && cmf info m.cmf | heal rum a \\\n --set b=1\n"
    )
    found = [unknown_in(words) for words in blocks.commands_in(text)]
    assert found == ["--deep", None, "rum"]
