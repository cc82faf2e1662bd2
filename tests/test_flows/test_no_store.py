"""A `--store` that can't be one: every command says so in a sentence, with exit code 2."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
import yaml
from typer.core import TyperGroup
from typer.testing import CliRunner

from flows.cli import app
from tests.small_heal import small_ground
from tests.test_cmfio.command import without_power

CONFIG = "a configuration whose files are there"
GIVEN = {"config": CONFIG, "run": "last", "names": "pack_windows"}
WANTS = {"fold": ("--drop", "0")}  # which refuses to do nothing


def lines(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that takes --store, with something for each argument it needs."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from lines(command, (*path, name))
        elif any("--store" in one.opts for one in command.params):
            needed = [p for p in command.params if p.param_type_name == "argument"]
            given = [GIVEN.get(str(p.name), "x") for p in needed if p.required]
            yield (*path, name, *given, *WANTS.get(name, ()))


def commands() -> list[tuple[str, ...]]:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return list(lines(group))


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("ground")
    path = root / "mine.yaml"
    path.write_text(yaml.safe_dump(small_ground(root).config()))
    return str(path)


def refused(line: tuple[str, ...], store: Path) -> str:
    done = CliRunner().invoke(app, [*line, "--store", str(store)])
    assert isinstance(done.exception, SystemExit), done.exception
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    (said,) = (one for one in done.stderr.splitlines() if one.startswith("error: "))
    assert "name a folder with --store, HEAL_STORE or runtime.store" in said
    return said


def test_the_commands_are_found() -> None:
    names = {line[:2] if line[0] == "store" else line[:1] for line in commands()}
    assert {("run",), ("plan",), ("ui",), ("up",), ("try",), ("store", "gc")} <= names
    assert len(names) == 21


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no place refuses a folder")
@pytest.mark.parametrize("line", commands(), ids=" ".join)
@pytest.mark.parametrize("place", ["/proc/x", "/proc/self/x/deeper"])
def test_where_no_folder_can_be_made(
    line: tuple[str, ...], place: str, config: str
) -> None:
    line = tuple(config if part == CONFIG else part for part in line)
    assert f"error: store {place}: no folder can be made in /proc" in refused(
        line, Path(place)
    )


@pytest.mark.parametrize("line", commands(), ids=" ".join)
def test_a_plain_file(line: tuple[str, ...], tmp_path: Path, config: str) -> None:
    line = tuple(config if part == CONFIG else part for part in line)
    place = tmp_path / "notes.txt"
    place.touch()
    assert f"store {place}: {place} is a file" in refused(line, place)
    assert f"{place} is a file" in refused(line, place / "deeper")


@pytest.mark.parametrize("line", [("status",), ("store", "ls"), ("plan", "demo")])
def test_a_link_that_leads_nowhere(line: tuple[str, ...], tmp_path: Path) -> None:
    place = tmp_path / "store"
    place.symlink_to(tmp_path / "gone")
    assert f"{place} is a link that leads nowhere" in refused(line, place)


@pytest.fixture
def locked() -> Iterator[Path]:
    """A folder that may be looked into and takes nothing, for whoever runs the test."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:  # tmp_path's own parents are the user's
        Path(name).chmod(0o555)
        yield Path(name)
        Path(name).chmod(0o755)


@pytest.mark.parametrize("line", [("demo",), ("ui",), ("plan", "demo")])
def test_a_read_only_folder(line: tuple[str, ...], locked: Path) -> None:
    with without_power():
        said = refused(line, locked / "store")
        assert f"no folder can be made in {locked} (Permission denied)" in said


def test_a_folder_that_may_not_be_looked_into(locked: Path) -> None:
    locked.chmod(0)
    with without_power():
        assert f"{locked} may not be read by you" in refused(("status",), locked)


def test_looking_is_refused_nowhere_by_default(
    locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEAL_STORE", raising=False)
    monkeypatch.chdir(locked)
    with without_power():
        done = CliRunner().invoke(app, ["status"])
    assert (done.exit_code, done.exception) == (0, None)
    assert "no run is written down" in done.stdout


def test_to_ask_leaves_nothing_behind(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["store", "ls", "--store", str(tmp_path / "a" / "b")])
    assert (done.exit_code, list(tmp_path.iterdir())) == (0, [])


def test_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    store = ["--store", str(tmp_path / "store")]
    done = CliRunner().invoke(app, ["up", "--home", str(tmp_path / "home"), *store])
    assert (done.exit_code, isinstance(done.exception, SystemExit)) == (2, True)
    assert "name another folder with --home" in done.stderr
