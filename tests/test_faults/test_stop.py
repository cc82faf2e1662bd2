"""Ctrl-C and SIGTERM: stopped at the next step, saved, told how to go on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.interrupt import StopFlag, stopping_on_signals
from tests.test_faults.faults import Fault, wait_for
from tests.test_faults.lab import Lab, Run

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def held_in(lab: Lab, pattern: str, nth: int = 1) -> Run:
    """A run that waits where it is about to put a file in its place."""
    run = lab.start(Fault("hold", "os.rename", pattern, nth, lab.root))
    wait_for(lab.root / "held")
    return run


def let_go(lab: Lab) -> None:
    (lab.root / "go").touch()


@pytest.mark.parametrize("number", CODES)
def test_training_stops_after_its_step_and_goes_on_from_there(
    uncut: Lab, lab: Lab, number: signal.Signals
) -> None:
    lab.drop("train_draft")
    run = held_in(lab, "*ckpt-facts.json", 5)
    run.send(number)
    let_go(lab)
    assert run.code() == CODES[number]
    assert (
        "train_draft heal: stopped after step 6 of 12, which is saved; the same command "
        "goes on from there"
    ) in run.said
    assert "Traceback" not in run.said
    resumed = lab.finish()
    assert resumed.states("train_draft") == ["resumed"]
    assert lab.contents() == uncut.contents()


def test_training_stops_in_an_evaluation_too(uncut: Lab, lab: Lab) -> None:
    lab.drop("train_draft")
    run = held_in(lab, "*ckpt-facts.json", 7)
    run.send(signal.SIGINT)
    let_go(lab)
    assert run.code() == 130
    assert "after step 8 of 12" in run.said
    assert "step 8:" not in run.said  # the evaluation that is due then is left to the next
    assert "step 8:" in lab.finish().said
    assert lab.contents() == uncut.contents()


def test_the_trunk_pass_stops_between_two_batches(uncut: Lab, lab: Lab) -> None:
    lab.drop("trunk_shard")
    run = held_in(lab, "*/hidden/c/*", 11)  # the third of the second shard's eight
    run.send(signal.SIGINT)
    let_go(lab)
    assert run.code() == 130
    assert (
        "trunk_shard: stopped in a shard, after 6 of its 16 windows; the same command "
        "goes on from there"
    ) in run.said
    resumed = lab.finish()
    assert resumed.states("trunk_shard") == ["cached", "ran", "ran", "ran"]
    assert lab.contents() == uncut.contents()


def test_a_measure_stops_between_two_batches(uncut: Lab, lab: Lab) -> None:
    """Held before it begins: by then it only looks at the flag after a batch."""
    lab.drop("measure_draft")
    run = lab.start(Fault("hold", "open", "*/measure_draft/*progress.json*", 1, lab.root))
    wait_for(lab.root / "held")
    run.send(signal.SIGTERM)
    let_go(lab)
    assert run.code() == 143
    assert "measure_draft stale: stopped after 2 of 5 windows" in run.said
    lab.finish()
    assert lab.contents() == uncut.contents()


@pytest.mark.parametrize(
    ("stage", "pattern"),
    [("pack_windows", "*windows.arrow"), ("rewrite_model", "*/rewrite_model/*/model.cmf")],
)
def test_what_has_nothing_to_save_stops_at_once(
    uncut: Lab, lab: Lab, stage: str, pattern: str
) -> None:
    lab.drop(stage)
    run = held_in(lab, pattern)
    run.send(signal.SIGTERM)  # and it is never let go
    assert run.code() == 143
    assert "finished stages are kept" in run.said
    assert "Traceback" not in run.said
    lab.finish()
    assert lab.contents() == uncut.contents()


def test_a_second_signal_stops_at_once(uncut: Lab, lab: Lab) -> None:
    lab.drop("train_draft")
    run = held_in(lab, "*ckpt-facts.json", 5)
    run.send(signal.SIGINT)
    run.send(signal.SIGTERM)
    assert run.code() in {130, 143}
    assert "finished stages are kept" in run.said
    assert lab.finish().states("train_draft") == ["resumed"]
    assert lab.contents() == uncut.contents()


def test_whoever_waits_for_another_run_stops_at_once(lab: Lab) -> None:
    lab.drop("train_draft")
    first = held_in(lab, "*ckpt-facts.json")
    second = lab.start()
    second.says("waiting")
    second.send(signal.SIGTERM)
    assert second.code() == 143
    first.process.kill()


def test_a_signal_that_the_shell_ignores_stays_ignored() -> None:
    """As for a job that `nohup` or a script put in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        flag = StopFlag()
        with stopping_on_signals(flag):
            signal.raise_signal(signal.SIGINT)
            with flag.heeded():
                signal.raise_signal(signal.SIGTERM)
        assert flag.signal == signal.SIGTERM
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_at_a_shell_ends_the_heal_command(lab: Lab) -> None:
    """The command as it is installed, started afresh."""
    lab.drop("train_draft")
    many = ("--set", "train.steps=100000", "--set", "train.patience=null")
    command = [str(Path(sys.executable).with_name("heal")), "run", str(lab.config)]
    with subprocess.Popen(
        [*command, *lab.options, *many],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stderr is not None
        said = [next(line for line in process.stderr if "step 4:" in line)]
        process.send_signal(signal.SIGINT)
        said += process.stderr.readlines()
        assert process.wait(30) == 130
    assert "of 100000, which is saved; the same command goes on" in said[-1]
