"""A whole heal, small enough for tests: a tiny model, data it would write, a config."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cmfio.reader import open_container
from cmfio.rewrite import rewrite
from conf.base import Wiring
from conf.load import check
from conf.schema import RunConfig
from flows.heal import run_heal
from nets.trunk import build_trunk
from store.artifact import Artifact
from store.store import Store
from tasks.pack import PackSettings, pack_windows
from tasks.report import ReportFiles
from tasks.sources import open_set
from tasks.stage import Runtime
from tests.builders import TinyModel, TinySpec, tiny_qwen3, write_model

torch.set_num_threads(1)

VOCAB, WINDOW, DEPTH = 300, 32, 2
Record = Sequence[int]


def small_model(seed: int = 0) -> TinyModel:
    return tiny_qwen3(TinySpec(vocab=VOCAB, seed=seed))


def own_records(model: TinyModel, count: int = 40, length: int = 40) -> list[list[int]]:
    """Records the trunk wrote greedily, so that nearly every row counts."""
    trunk = build_trunk(
        model.arch, model.shapes, model.read, device="cpu", dtype=torch.float32
    )
    ids = torch.arange(count)[:, None] * 7 % VOCAB
    with torch.no_grad():
        for _ in range(length - 1):
            last = trunk.final_norm(trunk.hidden(ids)[:, -1])
            ids = torch.cat([ids, trunk.logits(last).argmax(-1, keepdim=True)], dim=1)
    return [[int(i) for i in row] for row in ids]


def write_records(path: Path, records: Sequence[Record]) -> Path:
    path.write_text("".join(json.dumps({"ids": list(r)}) + "\n" for r in records))
    return path


@dataclass(frozen=True)
class HealRun:
    """What one heal did: a state for each stage call, by stage and label."""

    files: ReportFiles
    runtime: Runtime

    @property
    def made(self) -> list[str]:
        """The stage calls that were not cached, as `stage label`."""
        return [
            f"{event.name} {event.label}".rstrip()
            for event in self.runtime.ledger.events
            if event.state != "cached"
        ]

    def path(self, stage: str) -> Path:
        """The folder of the only artifact the run asked of a stage."""
        (key,) = {e.key for e in self.runtime.ledger.events if e.name == stage}
        return self.runtime.store.path(stage, key)


def heal(raw: Mapping[str, Any], store: Path, runtime: Runtime | None = None) -> HealRun:
    """A heal without a server, as another process would run it on this store."""
    runtime = runtime or Runtime(store=Store(store))
    config = check(RunConfig, raw, "small")
    return HealRun(run_heal(config, runtime, "heal run small.yaml"), runtime)


@dataclass(frozen=True)
class Ground:
    """A model, its data and a store that may already hold a finished heal."""

    student: Path
    data: Path
    store: Path
    model: TinyModel
    records: Sequence[Record]

    def config(self, **changes: Any) -> dict[str, Any]:
        """A config's raw settings; a change replaces a value or extends a section."""
        raw: dict[str, Any] = {
            "student": str(self.student),
            "data": [{"path": str(self.data), "name": "own"}],
            "pack": {"window": WINDOW},
            "trunk": {"topk": 8, "dtype": "f32", "shard_windows": 8},
            # The student's draft is noise: a probe would refuse to start from it.
            "probe": {"wiring": {"hidden": "raw", "chain": "raw"}},
            # Towards the trunk's own probabilities, as the oracles reckon.
            "train": {
                "depth": DEPTH,
                "lr": 1e-2,
                "steps": 12,
                "batch": 4,
                "eval_every": 4,
                "hard": 0.0,
            },
            "measure": {"depth": DEPTH},
            "runtime": {"device": "cpu", "threads": 1},
        }
        for name, value in changes.items():
            old = raw.get(name, {})
            raw[name] = old | value if isinstance(value, dict) else value
        return raw


def small_ground(root: Path) -> Ground:
    """The files of a small heal, not run yet."""
    model = small_model()
    records = own_records(model)
    student = write_model(root / "model.cmf", model)
    data = write_records(root / "own.jsonl", records)
    return Ground(student, data, root / "store", model, records)


def packed(ground: Ground, runtime: Runtime, tokens: int) -> Artifact:
    """The first tokens of a ground's text in windows, every tenth of them held out."""
    data = open_set(f"{ground.data}@{tokens}", runtime.store.digests)
    settings = PackSettings(
        window=WINDOW, depth=2, split="windows", names=("own",), tokens=(tokens,)
    )
    return pack_windows(settings, runtime, sets=[data], tokenizer=None)


def shard_states(runtime: Runtime) -> list[str]:
    """What came of each shard a pass asked for: ran or cached."""
    return [e.state for e in runtime.ledger.events if e.name == "trunk_shard"]


def short_heal(root: Path, student: Path, /, **changes: Any) -> dict[str, Any]:
    """Settings of a heal of a tiny checkpoint on `root/own.jsonl`, out to `root/out`."""
    raw: dict[str, Any] = {
        "student": str(student),
        "data": [{"path": str(root / "own.jsonl"), "name": "own"}],
        "pack": {"window": 32},
        "trunk": {"topk": 8, "dtype": "f32", "shard_windows": 64},
        "probe": {"wiring": {"hidden": "normed", "chain": "normed"}},
        "train": {"depth": 1, "lr": 1e-2, "steps": 8, "batch": 4, "eval_every": 8},
        "measure": {"depth": 1},
        "outputs": [{"codec": "keep", "path": str(root / "out")}],
        "runtime": {"device": "cpu", "threads": 1},
    }
    return raw | changes


def as_healed(model: Path, wiring: Wiring) -> Path:
    """A copy beside it whose draft is, by its own record, a heal's work for a wiring."""
    healed = model.with_name("healed.cmf")
    said: Any = {"wiring": {**wiring.model_dump(), "by": "probe"}}
    with open_container(model) as source:
        rewrite(source, healed, {}, provenance=("mtp_heal", said))
    return healed
