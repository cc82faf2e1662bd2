"""Two machines on one shared folder, each under a path of its own; the first one dies."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.filling import unplaced
from store.lease_folder import FolderBoard
from store.leases import latest
from store.store import Store
from tests.programs import Process, next_line, running

PROGRAM = Path(__file__).with_name("lease_program.py")


# A program in mounts and under a host name of its own: FOLDER is seen at PLACE only there.
MACHINE = """mount --bind "$1" "$2" && hostname "$3" && shift 3 && exec "$@" """


def machine(folder: Path, place: Path, host: str) -> list[str]:
    script = ["sh", "-c", MACHINE, "machine", str(folder), str(place), host]
    return ["unshare", "--mount", "--uts", *script]


def may_unshare() -> bool:
    asked = subprocess.run(["unshare", "--mount", "--uts", "true"], check=False)
    return asked.returncode == 0


@pytest.fixture(params=["link", "mounts"])
def pair(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Process, Process]]:
    """The first one fills, the second waits; each has the folder at a place of its own."""
    alpha, beta = tmp_path / "alpha", tmp_path / "beta"
    if request.param == "mounts":
        if not may_unshare():
            pytest.skip("mounts of one's own take root, and a container that lets it")
        alpha.mkdir()
        beta.mkdir()
        first_at = running(
            PROGRAM, alpha / "store", within=machine(tmp_path, alpha, "alpha")
        )
        second_at = running(PROGRAM, beta / "store", within=machine(tmp_path, beta, "beta"))
    else:
        beta.symlink_to(tmp_path)
        first_at = running(PROGRAM, tmp_path / "store", "alpha")
        second_at = running(PROGRAM, beta / "store", "beta")
    with first_at as first:
        assert next_line(first) == "filling"
        with second_at as second:
            assert (
                next_line(second) == "slow_text: another run is making it; waiting for that"
            )
            yield first, second


def holder(store: Path) -> str:
    board = FolderBoard(store / "locks")
    (name,) = [one for one in board.names() if one.startswith("slow_text/")]
    entry = latest(board, name)
    assert entry is not None
    assert entry.said is not None
    return "" if entry.said.is_free else entry.said.host


def the_only_one_is_sound(root: Path) -> None:
    store = Store(root)
    (made,) = store.artifacts()
    assert store.deep_check(made) == []
    assert (made.path / "text").read_text() == "a"
    assert sorted(path.name for path in made.path.iterdir()) == [
        "manifest.json",
        "record.json",
        "text",
    ]


def test_a_machine_that_died_is_succeeded_from_its_checkpoint(
    pair: tuple[Process, Process], tmp_path: Path
) -> None:
    first, second = pair
    assert holder(tmp_path / "store") == "alpha"
    first.send_signal(signal.SIGKILL)
    assert next_line(second).startswith("slow_text: an earlier run broke off")
    assert next_line(second) == "filling"
    assert holder(tmp_path / "store") == "beta"
    (tmp_path / "go").touch()
    assert next_line(second) == "resumed"
    assert holder(tmp_path / "store") == ""
    the_only_one_is_sound(tmp_path / "store")
    assert list(unplaced(Store(tmp_path / "store"))) == []


def test_a_machine_that_slept_meets_its_successor_and_publishes_nothing(
    pair: tuple[Process, Process], tmp_path: Path
) -> None:
    first, second = pair
    first.send_signal(signal.SIGSTOP)
    assert next_line(second).startswith("slow_text: an earlier run broke off")
    assert next_line(second) == "filling"
    first.send_signal(signal.SIGCONT)
    (tmp_path / "go").touch()
    assert next_line(second) == "resumed"
    assert first.stderr is not None
    end = first.stderr.read().splitlines()[-1]
    assert first.wait() == 1
    assert "LeaseLost" in end
    assert "taken over by another run" in end
    the_only_one_is_sound(tmp_path / "store")
