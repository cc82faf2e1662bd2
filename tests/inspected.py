"""A store as the inspector meets it: runs in every state, a damaged artifact, bad names."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from flows.runs import recorded
from store.ledger import Filling, Ledger
from store.runs import OpenRun, open_run
from store.store import Store
from tasks.stage import Runtime
from tests.small_heal import Ground, heal

HOSTILE = "<script>alert('x')</script>"
OUTPUTS = {
    "outputs": [
        {"codec": "keep", "path": "keep.cmf"},
        {"codec": "q8_row", "path": "q8.cmf"},
    ]
}


@dataclass(frozen=True)
class Inspected:
    """The store's folder, and the runs in it by what became of them."""

    root: Path
    done: str
    cached: str
    longer: str
    failed: str
    cut: str
    running: str
    damaged: str  # "stage/key"

    def key(self, stage: str) -> str:
        """The first finished artifact of a stage."""
        return next(one.key for one in Store(self.root).artifacts() if one.stage == stage)

    def made_by(self, run: str, stage: str) -> str:
        """The first artifact of a stage that a run asked for."""
        record = json.loads((self.root / "runs" / run / "run.json").read_text())
        return str(next(e["key"] for e in record["events"] if e["name"] == stage))


@contextmanager
def inspected(ground: Ground, folder: Path) -> Iterator[Inspected]:
    """Four real heals, one that failed, one cut off, and one that runs while this lasts."""
    done = _heal(ground, "heal run small.yaml", folder)
    cached = _heal(ground, "heal run small.yaml", folder)
    longer = _heal(ground, "heal run longer.yaml", folder, train={"steps": 16})
    failed = _book(ground.store, f"{HOSTILE}.cmf", [f"{HOSTILE}"])
    failed.end("failed", error=f"{HOSTILE}.cmf: there is no such file; name another")
    cut = _book(ground.store, "cut.cmf", ["own"])
    cut.follow(Ledger(filling=[Filling("train_draft", "a" * 32)]))
    cut.end("interrupted", error="train_draft: stopped after step 8 of 12, which is saved")
    running = _book(ground.store, "running.cmf", ["own", HOSTILE])
    running.follow(Ledger(filling=[Filling("train_draft", "b" * 32, since=0.0)]))
    said = {
        "task": "training",
        "done": 5,
        "total": 12,
        "unit": "step",
        "left_s": 90.0,
        "values": {"loss": 0.4612, "lr": 1.3e-5},
        "line": "training 5/12",
        "at": 9e9,
    }
    running.progress_path.write_text(json.dumps(said))
    (ground.store / "train_draft" / ("b" * 32) / "work").mkdir(parents=True)
    damaged = _damage(ground.store, longer)
    try:
        yield Inspected(
            ground.store, done, cached, longer, failed.record.id, cut.record.id,
            running.record.id, damaged,
        )  # fmt: skip
    finally:
        running.end("interrupted")


def _heal(ground: Ground, command: str, folder: Path, **changes: object) -> str:
    outputs = {
        "outputs": [{**o, "path": str(folder / o["path"])} for o in OUTPUTS["outputs"]]
    }
    raw = ground.config(**outputs, **changes)
    runtime = Runtime(store=Store(ground.store))
    from conf.load import check
    from conf.schema import RunConfig

    config = check(RunConfig, raw, "small")
    with recorded(runtime, command, config) as recording:
        run = heal(raw, ground.store, recording.runtime)
        recording.reported(run.files)
    runs = sorted(
        ground.store.glob("runs/*/run.json"), key=lambda path: path.stat().st_mtime_ns
    )
    return runs[-1].parent.name


def _book(root: Path, student: str, data: list[str]) -> OpenRun:
    config = yaml.safe_dump({
        "student": student, "data": data, "train": {"layout": "exact", "loss": "tail_kl"},
    })  # fmt: skip
    run = open_run(root, f"heal run {student}", config)
    assert run is not None
    return run


def _damage(root: Path, run: str) -> str:
    """Takes a file out of the longer run's own training."""
    events = json.loads((root / "runs" / run / "run.json").read_text())["events"]
    key = next(e["key"] for e in events if e["name"] == "train_draft")
    (root / "train_draft" / key / "log.arrow").unlink()
    return f"train_draft/{key}"
