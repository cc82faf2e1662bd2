from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.programs import Process, next_line, running

start = partial(running, Path(__file__).with_name("stage_program.py"))


def test_two_processes_one_computes_the_other_waits_and_hits(tmp_path: Path) -> None:
    with (
        start(tmp_path / "store") as first,
        running_after(first, tmp_path) as second,
    ):
        (tmp_path / "go").touch()
        assert next_line(first) == "ran"
        assert next_line(second) == "cached"
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_a_killed_process_is_succeeded_at_once_from_its_checkpoint(tmp_path: Path) -> None:
    with (
        start(tmp_path / "store") as first,
        running_after(first, tmp_path) as second,
    ):
        first.kill()
        first.wait()
        assert list((tmp_path / "store").glob("*/*/record.json")) == []
        assert next_line(second).startswith("slow_text: an earlier run broke off")
        assert next_line(second) == "filling"
        (tmp_path / "go").touch()
        assert next_line(second) == "resumed"
    assert (tmp_path / "ran").read_text() == "ran\nran\n"


@contextmanager
def running_after(first: Process, folder: Path) -> Iterator[Process]:
    """A second process, once the first fills and the second says that it waits."""
    assert next_line(first) == "filling"
    with start(folder / "store") as second:
        assert next_line(second) == "slow_text: another run is making it; waiting for that"
        yield second
