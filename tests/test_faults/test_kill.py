"""kill -9 at an exact place: nothing half made is ever used, the next run goes on."""

import re
from pathlib import Path

import pytest

from tests.test_faults.faults import Fault
from tests.test_faults.lab import Lab

# stage, event, file, how many times before: each is killed right before it happens.
PLACES = [
    ("pack_windows", "os.rename", "*windows.arrow", 1),
    ("pack_windows", "open", "*pack_windows/*manifest.json", 1),
    ("pack_windows", "open", "*record.json", 1),
    ("trunk_pass", "open", "*trunk_pass/*record.json", 1),
    ("train_draft", "os.rename", "*draft.safetensors", 1),
    ("train_draft", "open", "*train_draft/*manifest.json", 1),
    ("train_draft", "open", "*record.json", 1),
    ("rewrite_model", "open", "*model.cmf.partial", 1),
    ("rewrite_model", "os.rename", "*model.cmf", 1),
    ("measure_draft", "open", "*/hit/c/*", 2),
    ("measure_draft", "open", "*record.json", 2),
    ("report", "open", "*report.html*", 1),
]


@pytest.mark.parametrize(("stage", "event", "pattern", "nth"), PLACES)
def test_the_next_run_mends_what_a_kill_left(
    uncut: Lab, lab: Lab, stage: str, event: str, pattern: str, nth: int
) -> None:
    lab.drop(stage)
    killed = lab.start(Fault("kill", event, pattern, nth))  # type: ignore[arg-type]
    assert killed.code() == -9, killed.said
    kept = lab.contents()
    assert kept.items() <= uncut.contents().items()
    lab.finish()
    assert lab.contents() == uncut.contents()


def test_the_trunk_pass_goes_on_at_the_shard(uncut: Lab, lab: Lab) -> None:
    lab.drop("trunk_shard")
    # Four shards of 16 windows, 2 in a chunk: in the middle of the third.
    assert lab.start(Fault("kill", "open", "*/hidden/c/*", 20)).code() == -9
    resumed = lab.finish()
    assert resumed.states("trunk_shard") == ["cached", "cached", "ran", "ran"]
    assert lab.contents() == uncut.contents()


@pytest.mark.parametrize(
    ("event", "pattern", "nth"),
    [
        ("os.rename", "*ckpt-7-*.safetensors", 1),
        ("os.rename", "*ckpt-facts.json", 7),  # the seventh: its tensors are there already
        ("open", "*ckpt-facts.json*", 7),
    ],
)
def test_c8_training_goes_on_at_its_last_checkpoint_bit_equal(
    uncut: Lab, lab: Lab, event: str, pattern: str, nth: int
) -> None:
    lab.drop("train_draft")
    killed = lab.start(Fault("kill", event, pattern, nth))  # type: ignore[arg-type]
    assert killed.code() == -9
    resumed = lab.finish()
    assert resumed.states("train_draft") == ["resumed"]
    # Evaluations are at 0, 4, 8 and 12: those before the checkpoint are not run again.
    assert "step 4:" not in resumed.said
    assert "step 8:" in resumed.said
    assert lab.contents() == uncut.contents()


def test_e6_a_killed_run_is_told_as_interrupted_and_goes_on(lab: Lab) -> None:
    lab.drop("train_draft")
    assert lab.start(Fault("kill", "os.rename", "*ckpt-7-*.safetensors")).code() == -9
    asked = ("status", "--store", str(lab.store), "--json")
    runs = lab.start(arguments=asked).told["runs"]
    (killed,) = (run for run in runs if run["state"] != "done")
    assert killed["state"] == "interrupted"
    # Told every 2 s: the step then, not that of the kill.
    assert re.match(r"train_draft heal: training: [0-7] of 12", killed["step"]), killed
    assert lab.finish().states("train_draft") == ["resumed"]
    after = lab.start(arguments=asked).told["runs"]
    states = {run["id"]: run["state"] for run in after}
    assert states.pop(killed["id"]) == "interrupted"
    assert len(states) == len(runs)
    assert set(states.values()) == {"done"}


def test_a_run_that_is_killed_again_and_again_gets_done(uncut: Lab, files_lab: Lab) -> None:
    runs = 0
    everything = Fault("kill", "open", f"{files_lab.store}/*", 80)
    while (code := files_lab.start(everything).code()) == -9:
        assert files_lab.contents().items() <= uncut.contents().items()
        runs += 1
        assert runs < 20
    assert code == 0
    assert runs > 2
    assert files_lab.contents() == uncut.contents()


def test_a_published_file_is_the_old_one_or_the_new_one(uncut: Lab, lab: Lab) -> None:
    lab.out.parent.mkdir()
    lab.out.write_bytes(b"CMF\x01 that was there before")
    killed = lab.start(Fault("kill", "os.rename", str(lab.out)))
    assert killed.code() == -9
    assert lab.out.read_bytes() == b"CMF\x01 that was there before"
    lab.finish()
    assert lab.out.read_bytes() == uncut.out.read_bytes()
    assert [path.name for path in lab.out.parent.iterdir()] == ["healed.cmf"]


def fold(lab: Lab, model: Path, fault: Fault | None = None) -> tuple[int, Path]:
    out = lab.root / "folded.cmf"
    arguments = ("fold", str(model), str(out), "--drop", "1", "--store", str(lab.store))
    return lab.start(fault, arguments).code(), out


@pytest.mark.parametrize("place", ["*/fold_model/*/model.cmf", "*/folded.cmf"])
def test_a_killed_fold_is_folded_by_the_next(
    lab: Lab, files_student: Path, place: str
) -> None:
    assert fold(lab, files_student)[0] == 0
    whole = (lab.root / "folded.cmf").read_bytes()
    (lab.root / "folded.cmf").unlink()
    lab.drop("fold_model")
    code, out = fold(lab, files_student, Fault("kill", "os.rename", place))
    assert code == -9
    assert not out.exists()
    assert fold(lab, files_student)[0] == 0
    assert out.read_bytes() == whole
