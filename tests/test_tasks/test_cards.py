"""Draft training on several cards, here processes: what a killed one leaves, and errors."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

import pytest
from safetensors.torch import load_file

from conf.cards import Place, resolve_cards, torchrun_place
from conf.errors import ConfigError
from nets.errors import ModelError, Stopped
from store.store import Store
from tasks.count import Counting
from tasks.errors import RankLost
from tasks.progress import Bar, SilentProgress
from tasks.rank_events import Event, event_of
from tasks.stage import Runtime
from tests.small_heal import Ground, HealRun, heal

NEAR = 1e-5  # as in test_nets/test_ranks.py: f32 sums in another order


def processes_of(rank: int) -> list[int]:
    """The processes of a rank that this one started."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            mine = int((command.parent / "stat").read_text().rsplit(")", 1)[1].split()[1])
            is_rank = f"rank-{rank}.json".encode() in command.read_bytes()
        except OSError:
            continue  # it ended meanwhile
        if mine == os.getpid() and is_rank:
            found.append(int(command.parent.name))
    return found


@dataclass
class KillingProgress(SilentProgress):
    """Kills rank 1 once a step was made that a checkpoint follows; counts the steps."""

    kill_at: int | None = None
    steps: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)

    @contextmanager
    def task(self, name: str, **how: Unpack[Counting]) -> Iterator[Bar]:
        if name == "training":
            yield self
        else:
            with super().task(name, **how) as bar:
                yield bar

    def skip(self, count: int) -> None:
        self.before.append(count)

    def advance(self, count: int = 1, **values: float) -> None:
        self.steps.append(count)
        if len(self.steps) == self.kill_at:
            (process,) = processes_of(1)
            os.kill(process, signal.SIGKILL)


def run(ground: Ground, progress: KillingProgress, cards: int) -> HealRun:
    runtime = Runtime(store=Store(ground.store), cards=cards, progress=progress)
    return heal(ground.config(), ground.store, runtime)


def test_a_killed_rank_ends_the_stage_and_one_process_goes_on(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.train.SAVE_EVERY_S", 0.0)
    (trained,) = (ground.store / "train_draft").iterdir()
    uncut = load_file(trained / "draft.safetensors")
    shutil.rmtree(trained)
    killing = KillingProgress(kill_at=6)
    with pytest.raises(RankLost, match="rank 1 of 2 was killed by signal 9"):
        run(ground, killing, cards=2)
    assert not processes_of(0)
    assert not processes_of(1)
    assert not (trained / "record.json").exists()
    alone = KillingProgress()
    resumed = run(ground, alone, cards=1)
    (event,) = [e for e in resumed.runtime.ledger.events if e.name == "train_draft"]
    assert event.state == "resumed"
    assert alone.before[0] >= 4  # two steps at most were under way when it was killed
    assert resumed.path("train_draft") == trained  # however many trained: one key
    for name, tensor in load_file(trained / "draft.safetensors").items():
        off = (tensor - uncut[name]).abs().max().item()
        assert off < NEAR, f"{name} is off by {off}"


def test_errors_of_a_rank_come_as_their_kind_and_never_as_code() -> None:
    told = event_of(ModelError("step 3, windows 4: lower train.lr"))
    assert told is not None
    failed = Event.read(told.line()).failed
    assert failed is not None
    assert isinstance(failed.error(0), ModelError)
    assert str(failed.error(0)) == "step 3, windows 4: lower train.lr"
    full = event_of(OSError(28, "No space left on device", "/store/ckpt"))
    assert full is not None
    assert full.failed is not None
    found = full.failed.error(1)
    assert isinstance(found, OSError)
    assert found.errno == 28
    assert "/store/ckpt" in str(found)
    assert event_of(Stopped("after step 2")) == Event(stopped="after step 2")
    assert event_of(KeyError("a defect")) is None


def test_cards_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conf.cards.cuda_devices", lambda: 2)
    assert resolve_cards("all", "cuda") == 2
    assert resolve_cards(2, "cuda") == 2
    assert resolve_cards("all", "cpu") == 1
    with pytest.raises(ConfigError, match=r"runtime\.cards is 3: the driver offers 2"):
        resolve_cards(3, "cuda")


def test_torchrun_says_which_of_its_processes_this_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert torchrun_place() is None  # other launchers set these names too
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert torchrun_place() == Place(rank=5, size=8, card=1)
