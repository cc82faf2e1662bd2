"""A streamed pass against a resident one: the same artifacts, shard by shard."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cmfio.reader import open_container
from cmfio.rewrite import encode_tensor
from cmfio.writer import write_container
from store.artifact import Artifact
from store.store import Store
from tasks.compute_weights import compute_weights
from tasks.interrupt import StopFlag, Stopped
from tasks.model_file import open_model
from tasks.progress import SilentProgress
from tasks.shard_rows import ShardSettings
from tasks.stage import Runtime
from tasks.trunk_pass import run_trunk
from tests.builders import TinySpec, tiny_qwen3, write_model
from tests.small_heal import VOCAB, WINDOW, Ground, packed, shard_states

SHARD_WINDOWS, WINDOWS = 3, 8
TOKENS = (WINDOWS - 1) * WINDOW + 20
LAYERS = 2


class Shown(SilentProgress):
    """Counts what each bar was moved by."""

    def __init__(self) -> None:
        super().__init__()
        self.done: dict[str, int] = {}
        self.on_layer: Callable[[int], None] = lambda _: None

    @contextmanager
    def task(
        self, name: str, *, total: int | None = None, unit: str = "", **_: Any
    ) -> Iterator[Any]:
        yield _Counting(self, name)


class _Counting:
    def __init__(self, shown: Shown, name: str) -> None:
        self.shown, self.name = shown, name

    def advance(self, count: int = 1, **_: float) -> None:
        self.shown.done[self.name] = self.shown.done.get(self.name, 0) + count
        if self.name.startswith("layers"):
            self.shown.on_layer(self.shown.done[self.name])

    def skip(self, count: int) -> None:
        self.advance(count)


def runtime_of(folder: Path, **changes: Any) -> Runtime:
    return replace(Runtime(store=Store(folder)), **changes)


def passed(ground: Ground, runtime: Runtime, **changes: Any) -> Artifact:
    windows = packed(ground, runtime, TOKENS)
    given = {"topk": 8, "dtype": "f32", "window": WINDOW, "compile": False, **changes}
    trunk = open_model(ground.student, runtime).trunk
    settings = ShardSettings.model_validate(given)
    return run_trunk(trunk, windows, settings, SHARD_WINDOWS, runtime)


def contents(joined: Artifact, runtime: Runtime) -> list[str]:
    return [part.content_digest for part in runtime.store.parts(joined)]


@pytest.fixture
def most_calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Two windows a call, and so many calls at once."""
    monkeypatch.setattr("tasks.shard_rows.ROWS_A_CALL", 2 * WINDOW)

    def limit(calls: int) -> None:
        monkeypatch.setattr("tasks.placement.MOST_TOKENS", calls * 2 * WINDOW)

    return limit


@pytest.mark.parametrize("changes", [{}, {"dtype": "bf16"}, {"isolate": True}], ids=str)
@pytest.mark.parametrize("calls", [1, 3, 100])
def test_a_streamed_pass_makes_the_resident_ones_artifacts(
    finished: Ground,
    tmp_path: Path,
    most_calls: Callable[[int], None],
    changes: Mapping[str, Any],
    calls: int,
) -> None:
    most_calls(calls)
    resident = runtime_of(tmp_path / "resident", placement="resident")
    wanted = passed(finished, resident, **changes)
    progress = Shown()
    streamed = runtime_of(tmp_path / "streamed", placement="stream", progress=progress)
    found = passed(finished, streamed, **changes)
    # Neither content nor keys say how it was made.
    assert contents(found, streamed) == contents(wanted, resident)
    assert (found.key, found.content_digest) == (wanted.key, wanted.content_digest)
    assert progress.done["trunk pass"] == TOKENS
    # Shards of three windows are two calls each, the last of two windows is one.
    streams = {1: 5, 3: 2, 100: 1}[calls]
    layers = {name: n for name, n in progress.done.items() if name.startswith("layers")}
    assert sum(layers.values()) == streams * LAYERS
    assert torch.get_num_threads() == 1


def test_only_missing_shards_are_streamed(
    finished: Ground, tmp_path: Path, most_calls: Callable[[int], None]
) -> None:
    most_calls(100)
    runtime = runtime_of(tmp_path, placement="stream")
    wanted = passed(finished, runtime)
    _, second, _ = runtime.store.parts(wanted)
    first_file = next(path for path in second.path.rglob("*") if path.is_file())
    first_file.unlink()
    progress = Shown()
    again = replace(runtime, progress=progress, ledger=type(runtime.ledger)())
    assert contents(passed(finished, again), again) == contents(wanted, runtime)
    assert shard_states(again) == ["cached", "ran", "cached"]
    assert progress.done["layers over 3 windows"] == LAYERS
    assert progress.done["trunk pass"] == TOKENS


def test_a_stop_between_layers_keeps_the_shards_that_are_done(
    finished: Ground, tmp_path: Path, most_calls: Callable[[int], None]
) -> None:
    most_calls(3)  # the first shard and half of the second, then the rest
    stop, progress = StopFlag(), Shown()

    def on_layer(done: int) -> None:
        if "layers over 3 windows" in progress.done:
            stop.ask(signal.SIGINT)

    progress.on_layer = on_layer
    runtime = runtime_of(tmp_path, placement="stream", progress=progress, stop=stop)
    with pytest.raises(Stopped, match=r"trunk_shard: stopped in layer 1 of 2, over 2 batc"):
        passed(finished, runtime)
    on = runtime_of(tmp_path, placement="stream")
    found = passed(finished, on)
    assert shard_states(on) == ["cached", "ran", "ran"]
    wanted = runtime_of(tmp_path / "other", placement="resident")
    assert contents(found, on) == contents(passed(finished, wanted), wanted)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "q8_row", "q4_tiled", "vbit"])
def test_weights_in_the_compute_type_are_the_files_values_rounded(
    tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.compute_weights.BLOCK_ELEMENTS", 5 * 32)
    monkeypatch.setattr("tasks.compute_weights.MOST_ALONE", 41)
    name = "model.embed_tokens.weight"
    model = tiny_qwen3(TinySpec(vocab=VOCAB))
    path = write_model(tmp_path / "m.cmf", model)
    with open_container(path) as source:
        payloads = [
            encode_tensor(n, t.numpy(), dtype if n == name else "f16")
            for n, t in model.tensors.items()
        ]
        write_container(tmp_path / "n.cmf", source.header, payloads)
    with open_container(tmp_path / "n.cmf") as container:
        exact = torch.from_numpy(container.tensor(name))
        ids = torch.tensor([0, 7, 8, VOCAB - 1])
        for compute in (torch.float32, torch.bfloat16):
            weights = compute_weights(container, compute)
            whole, some = weights.read(name), weights.read_rows(name, ids)
            assert whole.dtype == some.dtype == compute
            assert torch.equal(whole, exact.to(compute))
            assert torch.equal(some, exact[ids].to(compute))
            assert weights.read("model.norm.weight").dtype == torch.float32
    assert torch.get_num_threads() == 1  # what decodes has threads of its own
