"""`pass_program.py GROUND STORE RUNNER`: a pass of eight shards."""

import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import torch
from pydantic import TypeAdapter

from conf.runner import Runner, RunnerKind
from store.artifact import Artifact
from store.store import Store
from tasks.count import Counting
from tasks.model_file import open_model
from tasks.pack import PackSettings, pack_windows
from tasks.progress import Bar, Progress, SilentProgress
from tasks.shard_rows import ShardSettings
from tasks.sources import open_set
from tasks.stage import Runtime
from tasks.trunk_pass import run_trunk
from tasks.work import UNSEEN
from tests.builders import TinySpec, tiny_qwen3, write_model

VOCAB, WINDOW, SHARDS, SHARD_WINDOWS = 300, 256, 8, 16
TOKENS = SHARDS * SHARD_WINDOWS * WINDOW


def make_ground(folder: Path) -> Path:
    """A tiny model and text of random tokens, a fraction of a second a shard."""
    folder.mkdir()
    write_model(folder / "model.cmf", tiny_qwen3(TinySpec(vocab=VOCAB)))
    draw = random.Random(0)
    records = ([draw.randrange(VOCAB) for _ in range(2048)] for _ in range(TOKENS // 2048))
    lines = "".join(json.dumps({"ids": ids}) + "\n" for ids in records)
    (folder / "own.jsonl").write_text(lines)
    return folder


def runner(kind: RunnerKind, cluster: str | None = None) -> Runner:
    return Runner() if kind == "threads" else Runner(kind, 2, cluster, 1)


def run_pass(
    ground: Path, store: Path, who: Runner, progress: Progress | None = None
) -> tuple[Artifact, Runtime]:
    torch.set_num_threads(1)
    runtime = Runtime(Store(store), runner=who, progress=progress or SilentProgress())
    data = open_set(f"{ground / 'own.jsonl'}@{TOKENS}", runtime.store.digests)
    settings = PackSettings(
        window=WINDOW, depth=2, split="windows", names=("own",), tokens=(TOKENS,)
    )
    windows = pack_windows(settings, runtime, sets=[data], tokenizer=None)
    trunk = open_model(ground / "model.cmf", runtime).trunk
    shard = ShardSettings(topk=8, dtype="f32", window=WINDOW, compile=False)
    return run_trunk(trunk, windows, shard, SHARD_WINDOWS, runtime), runtime


def states(runtime: Runtime) -> list[str]:
    return [e.state for e in runtime.ledger.events if e.name == "trunk_shard"]


@dataclass
class Watched(SilentProgress):
    """Says when a pass is so many tokens far."""

    at: int = 0
    done: int = 0

    def __post_init__(self) -> None:
        self.said = []

    @contextmanager
    def task(self, name: str, **how: Unpack[Counting]) -> Iterator[Bar]:
        yield self if name.startswith("trunk pass") else UNSEEN

    def advance(self, count: int = 1, **values: float) -> None:
        before, self.done = self.done, self.done + count
        if before < self.at <= self.done:
            self.reached()

    def skip(self, count: int) -> None:
        """Nothing to watch."""

    def reached(self) -> None:
        """What a test does then."""


def main() -> None:
    ground, store, kind = sys.argv[1:]
    who = runner(TypeAdapter(RunnerKind).validate_python(kind))
    rows, runtime = run_pass(Path(ground), Path(store), who)
    sys.stdout.write(json.dumps([rows.content_digest, states(runtime)]))


if __name__ == "__main__":
    main()
