"""What is imported is declared, and pinned at the version that is installed; offline."""

import ast
import re
import sys
import sysconfig
import tomllib
from collections import defaultdict
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

HERE = Path(__file__).parents[1]
SHIPPED = ("cmfio", "conf", "flows", "nets", "store", "tasks", "ui")
ROOMS = (*SHIPPED, "bench", "tests")
# Of clusters: what a plain install does without.
ENGINES = ("dask", "ray")
EXTRAS = ("dask", "dev", "gguf", "kubernetes", "ray", "s3")
# Of the program that training is raced against, in an environment of its own.
PEERS = {"datasets", "speculators"}


def imported(rooms: tuple[str, ...]) -> dict[str, list[str]]:
    """Distributions by the files that import them; of unknown ones the module's name."""
    owners = metadata.packages_distributions()
    found: dict[str, list[str]] = defaultdict(list)
    for path, modules in modules_of(HERE, rooms).items():
        for top in {module.partition(".")[0] for module in modules}:
            if top not in {*sys.stdlib_module_names, *ROOMS, *PEERS}:
                for name in owners.get(top, [top]):
                    found[canonicalize_name(name)].append(path)
    return found


@cache
def modules_of(root: Path, rooms: tuple[str, ...]) -> dict[str, set[str]]:
    return {
        str(path.relative_to(root)): modules_in(ast.parse(path.read_text()))
        for room in rooms
        for path in sorted((root / room).rglob("*.py"))
    }


def modules_in(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def declared(*extras: str) -> set[str]:
    """Names in pyproject's dependencies and in these extras."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return {canonicalize_name(re.split(r"[^\w.-]", line)[0]) for line in lines}


def pins() -> dict[str, str]:
    lines = (HERE / "constraints.txt").read_text().splitlines()
    found = [line.partition("==") for line in lines if line and line[0] != "#"]
    assert all(equals for _, equals, _ in found), "constraints.txt pins exact versions only"
    return {canonicalize_name(name): version for name, _, version in found}


@pytest.mark.parametrize(
    ("rooms", "extras"),
    [(SHIPPED, ("gguf", *ENGINES, "s3")), (ROOMS, ("gguf", *ENGINES, "dev"))],
)
def test_what_is_imported_is_declared(
    rooms: tuple[str, ...], extras: tuple[str, ...]
) -> None:
    unknown = {n: w for n, w in imported(rooms).items() if n not in declared(*extras)}
    assert unknown == {}, "add these to pyproject.toml, or import what is declared"


def test_every_import_and_declaration_is_pinned() -> None:
    named = set(imported(ROOMS)) | declared(*EXTRAS)
    assert named - pins().keys() == set(), "pin these in constraints.txt"


def test_pins_are_the_versions_that_are_tested() -> None:
    # A local part (`+cpu`) says how the same version was built. Only what pip installed:
    # setuptools puts copies of its own on the path once something imports it.
    installed = metadata.distributions(path=[sysconfig.get_path("purelib")])
    found = {canonicalize_name(d.name): d.version.partition("+")[0] for d in installed}
    pinned = pins()
    optional = declared(*ENGINES) - declared()
    missing = [n for n in imported(ROOMS) if n not in found and n not in optional]
    assert missing == [], "install these"
    other = {n: (pinned[n], v) for n, v in found.items() if pinned.get(n, v) != v}
    assert other == {}, "constraints.txt says one version, another is installed"
