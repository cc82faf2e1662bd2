"""Whole heals whose draft several processes train: stopped and resumed, and by torchrun."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

import pytest
from safetensors.torch import load_file

from nets.errors import Stopped
from store.store import Store
from tasks.count import Counting
from tasks.interrupt import StopFlag
from tasks.progress import Bar, SilentProgress
from tasks.stage import Runtime
from tests.small_heal import Ground, heal

pytestmark = pytest.mark.scale

NEAR = 1e-5  # as in test_nets/test_ranks.py: f32 sums in another order


@dataclass
class StoppingProgress(SilentProgress):
    """Asks the run to stop after three steps."""

    flag: StopFlag = field(default_factory=StopFlag)
    steps: int = 0

    @contextmanager
    def task(self, name: str, **how: Unpack[Counting]) -> Iterator[Bar]:
        with super().task(name, **how) as bar:
            yield self if name == "training" else bar

    def skip(self, count: int) -> None: ...

    def advance(self, count: int = 1, **values: float) -> None:
        self.steps += 1
        if self.steps == 3:
            self.flag.ask(signal.SIGTERM)


def assert_near(found: Path, uncut: Path) -> None:
    expected = load_file(uncut / "draft.safetensors")
    for name, tensor in load_file(found / "draft.safetensors").items():
        off = (tensor - expected[name]).abs().max().item()
        assert off < NEAR, f"{name} is off by {off}"


def untrained(ground: Ground, folder: Path) -> tuple[Path, Path]:
    """Where the ground's training belongs, and a copy of what one process made there."""
    (trained,) = (ground.store / "train_draft").iterdir()
    uncut = shutil.copytree(trained, folder / "uncut")
    shutil.rmtree(trained)
    return trained, uncut


def test_ranks_stop_together_and_go_on(ground: Ground, tmp_path: Path) -> None:
    trained, uncut = untrained(ground, tmp_path)
    stopping = StoppingProgress()
    store, flag = Store(ground.store), stopping.flag
    with pytest.raises(Stopped, match=r"train_draft.*after step \d+ of 12, which is saved"):
        heal(
            ground.config(),
            ground.store,
            Runtime(store=store, cards=2, progress=stopping, stop=flag),
        )
    on = heal(ground.config(), ground.store, Runtime(store=store, cards=2))
    (event,) = [e for e in on.runtime.ledger.events if e.name == "train_draft"]
    assert event.state == "resumed"
    assert_near(trained, uncut)


def test_torchrun_runs_the_command_once_and_all_its_processes_train(
    ground: Ground, tmp_path: Path
) -> None:
    trained, uncut = untrained(ground, tmp_path)
    config = tmp_path / "small.yaml"  # JSON is YAML
    config.write_text(json.dumps(ground.config()))
    heal_script = Path(sys.executable).with_name("heal")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", "2", str(heal_script)),
            *("run", str(config), "--store", str(ground.store), "--json"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "HEAL_STORE": ""},
    )
    assert done.returncode == 0, done.stderr
    stages = {one["name"]: one["state"] for one in json.loads(done.stdout)["stages"]}
    assert stages["train_draft"] == "ran"  # said once: by rank 0
    notes = json.loads((trained / "manifest.json").read_text())["notes"]
    assert notes["ranks"] == 2
    assert_near(trained, uncut)
