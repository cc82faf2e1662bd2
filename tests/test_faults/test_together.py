"""Two runs of one config at once: one computes, the other waits, hits, or takes over."""

import time

from tests.test_faults.faults import Fault, wait_for
from tests.test_faults.lab import Lab


def test_the_second_waits_and_hits(uncut: Lab, lab: Lab) -> None:
    lab.drop("train_draft")
    first = lab.start(Fault("hold", "os.rename", "*ckpt-facts.json", 3, lab.root))
    wait_for(lab.root / "held")
    second = lab.start()
    second.says("train_draft heal: another run is making it; waiting for that")
    (lab.root / "go").touch()
    assert (first.code(), second.code()) == (0, 0)
    assert first.states("train_draft") == ["ran"]
    assert second.states("train_draft") == ["cached"]
    assert lab.contents() == uncut.contents()


def test_the_second_takes_over_within_a_second_of_a_kill(uncut: Lab, lab: Lab) -> None:
    lab.drop("train_draft")
    first = lab.start(Fault("hold", "os.rename", "*ckpt-facts.json", 6, lab.root))
    wait_for(lab.root / "held")
    second = lab.start()
    second.says("waiting for that")
    killed_at = time.monotonic()
    first.process.kill()
    took_over_at = second.says("an earlier run broke off; starting from what it can resume")
    assert took_over_at - killed_at < 1
    assert second.code() == 0
    assert second.states("train_draft") == ["resumed"]
    assert lab.contents() == uncut.contents()


def test_both_publish_to_one_path_in_turn(uncut: Lab, lab: Lab) -> None:
    first = lab.start(Fault("hold", "os.rename", str(lab.out), 1, lab.root))
    wait_for(lab.root / "held")
    second = lab.start()
    time.sleep(0.3)  # nothing is said of this wait: a copy is short
    assert second.process.is_alive()
    assert not lab.out.exists()
    (lab.root / "go").touch()
    assert (first.code(), second.code()) == (0, 0)
    assert lab.out.read_bytes() == uncut.out.read_bytes()
    assert [path.name for path in lab.out.parent.iterdir()] == ["healed.cmf"]


def test_from_nothing_each_stage_is_made_once(uncut: Lab, files_lab: Lab) -> None:
    runs = [files_lab.start(), files_lab.start()]
    assert [run.code() for run in runs] == [0, 0]
    for stage in ("pack_windows", "train_draft", "rewrite_model"):
        made = [state for run in runs for state in run.states(stage)]
        assert sorted(made) == ["cached", "ran"], stage
    assert files_lab.contents() == uncut.contents()
