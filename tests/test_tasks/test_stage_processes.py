import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("stage_program.py")


@contextmanager
def running(store: Path) -> Iterator["subprocess.Popen[str]"]:
    """`stage_program.py` on this store; killed on the way out."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), str(store)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "DO_NOT_TRACK": "1"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    return process.stderr.readline().strip()


def test_two_processes_one_computes_the_other_waits_and_hits(tmp_path: Path) -> None:
    with running(tmp_path / "store") as first, running_after(first, tmp_path) as second:
        (tmp_path / "go").touch()
        assert next_line(first) == "ran"
        assert next_line(second) == "cached"
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_a_killed_process_is_succeeded_at_once_from_its_checkpoint(tmp_path: Path) -> None:
    with running(tmp_path / "store") as first, running_after(first, tmp_path) as second:
        first.kill()
        first.wait()
        assert list((tmp_path / "store").glob("*/*/record.json")) == []
        assert next_line(second).startswith("slow_text: an earlier run broke off")
        assert next_line(second) == "filling"
        (tmp_path / "go").touch()
        assert next_line(second) == "resumed"
    assert (tmp_path / "ran").read_text() == "ran\nran\n"


@contextmanager
def running_after(
    first: "subprocess.Popen[str]", folder: Path
) -> Iterator["subprocess.Popen[str]"]:
    """A second process, once the first fills and the second says that it waits."""
    assert next_line(first) == "filling"
    with running(folder / "store") as second:
        assert next_line(second) == "slow_text: another run is making it; waiting for that"
        yield second
