"""Names are data: whatever a set, model or store is called, nothing else is written.

Each is healed or planned as any other, or refused with exit code 2 and one line.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from flows.cli import app
from tests.small_heal import Ground, heal, small_ground, write_records

FINE = {
    "outside": "../../outside",
    "absolute": "/tmp/mtp-heal-outside",
    "dots": "..",
    "tags": "<script>alert(1)</script>",
    "shell": "a'\"`$(touch outside)`|b;c",
    "markup": "[red]x[/nope] %s {0} | *a*",
    "combining": "e\u0301" + "\u0308" * 60,
    "Hebrew": "שלום.jsonl",
    "long": "n" * 255,
}
BAD = {
    "NUL": "a\0b",
    "newline": "a\nb",
    "escape": "\x1b[2Ja",
    "turned around": "\u202egpj.exe",
    "half a character": "a\ud800b",
    "too long": "n" * 300,
}
EVERY = FINE | BAD


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return small_ground(tmp_path_factory.mktemp("small"))


def called(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def is_refused(done: Result) -> str:
    """The one line that says why, printable throughout."""
    assert isinstance(done.exception, SystemExit), repr(done.exception)
    assert done.exit_code == 2, done.stderr
    (line,) = (said for said in done.stderr.splitlines() if said.startswith("error: "))
    assert line.isprintable()
    return line


def plan(raw: Mapping[str, Any], folder: Path) -> Result:
    config = folder / "run.yaml"
    config.write_text(yaml.safe_dump(dict(raw)))
    return called("plan", str(config), "--store", str(folder / "own"))


def listed(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_sets_of_any_name_are_healed_inside_the_store(
    small: Ground, tmp_path: Path
) -> None:
    place = tmp_path / "a" / "b" / "c"
    place.mkdir(parents=True)
    data = [
        {"path": str(write_records(place / f"{i}.jsonl", small.records)), "name": name}
        for i, name in enumerate(FINE.values())
    ]
    before = listed(tmp_path)
    run = heal(small.config(data=data, train={"steps": 2}), place / "store")
    made = listed(tmp_path) - before
    assert {path for path in made if not path.startswith("a/b/c/store")} == set()
    assert not Path(FINE["absolute"]).exists()
    assert set(run.files.report.measures["healed"].by_set) == set(FINE.values())
    page = run.files.page.read_text("utf-8")
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
    kinds = {"digests", "locks", "runs", *(e.name for e in run.runtime.ledger.events)}
    assert {path.name for path in (place / "store").iterdir()} <= kinds


@pytest.mark.parametrize("name", BAD.values(), ids=BAD)
def test_a_set_that_could_not_be_shown_is_refused(
    small: Ground, tmp_path: Path, name: str
) -> None:
    raw = small.config(data=[{"path": str(small.data), "name": name}])
    assert "give it a `name`" in is_refused(plan(raw, tmp_path))


def test_a_files_own_name_is_held_to_the_same(small: Ground, tmp_path: Path) -> None:
    data = write_records(tmp_path / "a\x1b[2J\nb.jsonl", small.records)
    said = is_refused(plan(small.config(data=[str(data)]), tmp_path))
    assert r"'a\x1b[2J\nb.jsonl' holds characters that would not be shown" in said
    named = small.config(data=[{"path": str(data), "name": "own"}])
    assert plan(named, tmp_path).exit_code == 0


@pytest.mark.parametrize("name", [n for n in EVERY.values() if "/" not in n])
def test_models_of_any_file_name(small: Ground, tmp_path: Path, name: str) -> None:
    student = tmp_path / f"{name}.cmf"
    outputs = [{"codec": "keep", "path": str(tmp_path / f"{name}.out.cmf")}]
    try:
        student.symlink_to(small.student)
    except (OSError, ValueError):  # no file system has such a name
        raw = small.config(student=str(student))
        assert is_refused(plan(raw, tmp_path))
        assert is_refused(plan(small.config(init=str(student)), tmp_path))
        assert is_refused(plan(small.config(outputs=outputs), tmp_path))
    else:
        raw = small.config(student=str(student), outputs=outputs)
        done = plan(raw, tmp_path)
        assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize("name", EVERY.values(), ids=EVERY)
def test_what_is_not_there_is_said_in_a_line(
    small: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place = tmp_path / "a" / "b"
    place.mkdir(parents=True)
    monkeypatch.chdir(place)
    missing = f"none/{name}"
    before = listed(tmp_path)
    raws = [
        small.config(student=missing),
        small.config(init=missing),
        small.config(data=[missing]),
        small.config(outputs=[{"codec": name, "path": "out.cmf"}]),
        small.config(runtime={"store": missing, "threads": name}),
    ]
    for raw in raws:
        assert is_refused(plan(raw, place))
    for words in (["run"], ["plan"], ["report"], ["store", "pin"], ["store", "rm"]):
        assert is_refused(called(*words, f"{name}none", "--store", "own"))
    # In Typer's words, or as a finding of its own.
    doctor = called("doctor", f"{name}none", "--store", "own")
    assert (doctor.exit_code, type(doctor.exception)) == (2, SystemExit)
    assert is_refused(called("plan", "run.yaml", "--set", f"{name}=1"))
    left = listed(tmp_path) - before
    assert {path for path in left if not path.startswith("a/b/own")} == {"a/b/run.yaml"}


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_store_of_no_possible_name_is_refused(
    small: Ground, tmp_path: Path, name: str
) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(small.config(runtime={"store": name})))
    assert "runtime.store: can't be a path" in is_refused(called("run", str(config)))
