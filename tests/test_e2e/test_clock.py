"""A clock that jumps under the services: every process sees the new time at once."""

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.test_e2e.site import Lab, make_lab, processes_of, wait_until

pytestmark = pytest.mark.faults
SOURCE = Path(__file__).with_name("clock.c")
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


@dataclass(frozen=True)
class Clock:
    """What the services and commands of this file take the time of day to be."""

    path: Path

    def set(self, shift: timedelta) -> None:
        """Everybody's clock jumps to the true time and `shift`."""
        with self.path.open("r+b") as file:  # in place: it is mapped into each process
            file.write(struct.pack("q", int(shift.total_seconds())))


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clock]:
    """A clock of its own for whatever is started from here on."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("cc, a C compiler, is not installed: no clock can be shifted")
    root = tmp_path_factory.mktemp("clock")
    (root / "shift").write_bytes(bytes(8))
    library = root / "clock.so"
    line = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(line, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library))
        patch.setenv("SHIFTED_CLOCK", str(root / "shift"))
        yield Clock(root / "shift")


@pytest.fixture(scope="module")
def lab(clock: Clock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Services that live by this clock."""
    made = make_lab(tmp_path_factory.mktemp("home"))
    try:
        made.up()
        yield made
    finally:
        clock.set(timedelta())
        made.down()
    assert processes_of(made.site.home) == []


def test_the_clock_of_every_process_jumps(clock: Clock) -> None:
    clock.set(DAY)
    try:
        said = subprocess.run(["date", "-u", "+%F"], capture_output=True, check=True)
    finally:
        clock.set(timedelta())
    there = (datetime.now(UTC) + DAY).date()
    assert said.stdout.decode().strip() == str(there)
    assert os.environ["LD_PRELOAD"]


def jump_in_mid_training(lab: Lab, clock: Clock, shift: timedelta, steps: int) -> None:
    """The run goes on to its end; the same run again finds everything it made."""
    overrides = (f"train.steps={steps}", "train.patience=null")
    run = lab.begin(*overrides)
    clock.set(shift)
    assert lab.state_of(run) == "Running"
    assert lab.ended(run) == "Completed", lab.log("worker")
    again = lab.scheduled(*overrides)
    assert lab.ended(again) == "Completed", lab.log("worker")
    wait_until(lambda: len(lab.states(again)) >= 8, "all tasks told")
    assert set(lab.states(again).values()) == {"Cached"}


def test_a_day_on_and_the_night_between_is_made_good(lab: Lab, clock: Clock) -> None:
    wait_until(lambda: lab.planned("reheal"), "the nights are planned")
    jump_in_mid_training(lab, clock, DAY, steps=200)
    wait_until(lambda: lab.runs("reheal"), "the night that was jumped over")
    assert lab.ended(lab.runs("reheal")[0]["id"]) == "Completed"
    assert (lab.models / "a.healed.cmf").exists()


def test_an_hour_back(lab: Lab, clock: Clock) -> None:
    """From the day after; runs asked for then begin at once, not an hour later."""
    clock.set(DAY)
    jump_in_mid_training(lab, clock, DAY - HOUR, steps=201)
