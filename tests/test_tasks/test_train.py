"""Training that was cut goes on from its checkpoint and ends with the same bytes."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

import pytest

from store.store import Store
from store.tables import read_table
from tasks.count import Counting
from tasks.progress import Bar, SilentProgress
from tasks.stage import Runtime
from tests.small_heal import Ground, HealRun, heal


@dataclass
class CutProgress(SilentProgress):
    """Interrupts training at a step; counts the steps that were shown."""

    cut_at: int | None = None
    shown: list[int] = field(default_factory=list)

    @contextmanager
    def task(self, name: str, **how: Unpack[Counting]) -> Iterator[Bar]:
        if name == "training":
            yield _CountedBar(self)
        else:
            with super().task(name, **how) as bar:
                yield bar


@dataclass
class _CountedBar:
    progress: CutProgress

    def advance(self, count: int = 1, **values: float) -> None:
        if values:
            self.progress.shown.append(count)
        if len(self.progress.shown) == self.progress.cut_at:
            raise KeyboardInterrupt

    def skip(self, count: int) -> None: ...


def run(ground: Ground, progress: CutProgress) -> HealRun:
    runtime = Runtime(store=Store(ground.store), progress=progress)
    return heal(ground.config(), ground.store, runtime)


@pytest.fixture
def untrained(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> tuple[Ground, dict[str, bytes]]:
    """A store less its training, to be saved after every step; and what that held."""
    monkeypatch.setattr("tasks.train.SAVE_EVERY_S", 0.0)
    (trained,) = (ground.store / "train_draft").iterdir()
    names = ("draft.safetensors", "log.arrow")
    held = {name: (trained / name).read_bytes() for name in names}
    shutil.rmtree(trained)
    return ground, held


def files(folder: Path, names: dict[str, bytes]) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names}


@pytest.mark.parametrize("cut_at", [7, 9])  # before and after an evaluation
def test_a_cut_training_resumes_bit_equal(
    untrained: tuple[Ground, dict[str, bytes]], cut_at: int
) -> None:
    ground, uncut = untrained
    with pytest.raises(KeyboardInterrupt):
        run(ground, CutProgress(cut_at=cut_at))
    (broken,) = (ground.store / "train_draft").iterdir()
    assert not (broken / "record.json").exists()
    progress = CutProgress()
    resumed = run(ground, progress)
    assert len(progress.shown) == 12 - (cut_at - 1)  # the step that was cut is lost
    assert [e.state for e in resumed.runtime.ledger.events if e.name == "train_draft"] == [
        "resumed"
    ]
    trained = resumed.path("train_draft")
    assert files(trained, uncut) == uncut
    assert not (trained / "work").exists()
    assert resumed.made == ["train_draft heal", "report"]  # the same bytes: files are hits


def test_a_checkpoint_that_cannot_be_read_starts_over(
    untrained: tuple[Ground, dict[str, bytes]],
) -> None:
    ground, uncut = untrained
    with pytest.raises(KeyboardInterrupt):
        run(ground, CutProgress(cut_at=7))
    (tensors,) = ground.store.glob("train_draft/*/work/ckpt-*.safetensors")
    tensors.write_bytes(tensors.read_bytes()[:100])
    progress = CutProgress()
    again = run(ground, progress)
    assert len(progress.shown) == 12
    assert files(again.path("train_draft"), uncut) == uncut
    assert "ran" in {e.state for e in again.runtime.ledger.events if e.label == "heal"}


def test_training_chose_a_later_checkpoint(finished: Ground) -> None:
    """Else the comparisons above would be of the starting weights."""
    trained = heal(finished.config(), finished.store).files.report.training
    assert trained is not None
    assert trained.chosen_step == 4


@pytest.mark.parametrize(
    ("train", "kinds"), [({"layout": "rows"}, 2), ({"layout": "stride", "stride": 4}, 2)]
)
def test_the_reference_s_layouts_resume_bit_equal_and_say_each_kind(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, train: dict[str, object], kinds: int
) -> None:
    monkeypatch.setattr("tasks.train.SAVE_EVERY_S", 0.0)
    config = ground.config(train=train | {"refresh": 3, "steps": 8})
    runtime = Runtime(store=Store(ground.store), progress=CutProgress(cut_at=5))
    with pytest.raises(KeyboardInterrupt):
        heal(config, ground.store, runtime)
    cut = heal(config, ground.store)
    (trained,) = [
        event for event in cut.runtime.ledger.events if event.name == "train_draft"
    ]
    assert trained.state == "resumed"
    folder = cut.path("train_draft")
    names = {"draft.safetensors": b"", "log.arrow": b""}
    resumed = files(folder, names)
    log = read_table(folder / "log.arrow").to_pylist()
    assert [row["step"] for row in log] == [*range(9)]
    assert {row["kind"] for row in log[1:]} == set(range(1, kinds + 1))
    for row in (log[0], log[4], log[8]):
        assert row["kl"] == row["kl_1"]
        assert row["kl_2"] is not None  # 0 where no chain gets to step 2
        for kind in range(1, kinds + 1):
            assert row[f"kind_kl_{kind}"] > 0, kind
    assert log[1]["kl_2"] is None
    said = cut.files.report.provenance
    assert (said["layout"], said["stride"]) == (train["layout"], train.get("stride"))
    assert isinstance(said["heldout_kind_kl_start"], float)
    shutil.rmtree(folder)
    assert files(heal(config, ground.store).path("train_draft"), names) == resumed
