"""Held or streamed: what a trunk takes against what it then takes, and who decides."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch

from nets.stream import Call, StreamedTrunk
from nets.trunk import build_trunk
from store.store import Store
from tasks.errors import InputError
from tasks.model_file import ModelPart, open_model
from tasks.placed_trunk import load_trunk, placed_trunk
from tasks.placement import place_trunk, trunk_bytes
from tasks.stage import Runtime
from tests.builders import (
    TinyModel,
    TinySpec,
    tiny_llama,
    tiny_qwen3,
    tiny_qwen3_5_moe,
    write_model,
)
from tests.tiny_checkpoints import make_checkpoint

UNEVEN = [(4, 2, 48), (2, 1, 17), (4, 2, 96)]
BUDGET = 1 << 20
Build = Callable[[TinySpec], TinyModel]


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime(store=Store(tmp_path / "store"), head_budget_bytes=BUDGET)


def part_of(folder: Path, build: Build, runtime: Runtime) -> ModelPart:
    path = write_model(folder / "m.cmf", build(TinySpec(layers=UNEVEN)))
    return open_model(path, runtime).trunk


def tensors_bytes(module: torch.nn.Module) -> int:
    every = [*module.parameters(), *module.buffers()]
    return sum(tensor.nbytes for tensor in every)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(
    "build",
    [tiny_llama, tiny_qwen3, tiny_qwen3_5_moe],
    ids=["own head", "tied", "experts and a delta net"],
)
def test_a_trunks_bytes_are_those_of_its_tensors(
    tmp_path: Path, runtime: Runtime, build: Build, dtype: Literal["f32", "bf16"]
) -> None:
    path = write_model(tmp_path / "m.cmf", build(TinySpec()))
    part = open_model(path, runtime).trunk
    found = trunk_bytes(part, dtype, 100, runtime)
    trunk = load_trunk(part, dtype, runtime)
    layers = [tensors_bytes(layer) for layer in trunk.layers]
    tables = {id(t): t.nbytes for t in (trunk.shared.embed_VH, trunk.shared.head_VH)}
    assert found.whole == sum(layers) + sum(tables.values())
    assert found.largest_layer == max(layers)
    assert found.head == trunk.shared.head_VH.nbytes
    assert found.row == trunk.hidden(torch.tensor([[1]])).nbytes
    assert found.room > BUDGET


@pytest.mark.parametrize(
    ("spare", "kind"),
    [(0, "resident"), (-1, "stream"), (-10_000, "stream")],
    ids=["just enough", "a byte less", "less"],
)
def test_what_fits_is_held_and_what_does_not_is_streamed(
    tmp_path: Path,
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
    spare: int,
    kind: str,
) -> None:
    monkeypatch.setattr("tasks.placement.LAYERS_AT_ONCE", 1)  # so few layers hardly pay
    part = part_of(tmp_path, tiny_llama, runtime)
    need = trunk_bytes(part, "f32", 100, runtime).resident
    monkeypatch.setattr("tasks.placement.free_memory", lambda _: need + spare)
    placing = place_trunk(part, "f32", 100, runtime)
    assert placing.kind == kind
    assert "of it in f32 needs" in placing.text()
    assert "are free" in placing.text()
    with placed_trunk(part, "f32", 100, runtime) as placed:
        assert type(placed.trunk).__name__ == ("Trunk" if spare == 0 else "StreamedTrunk")


def test_a_setting_decides_without_a_look(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = part_of(tmp_path, tiny_llama, runtime)
    monkeypatch.setattr("tasks.placement.free_memory", lambda _: 0)
    for kind in ("resident", "stream"):
        placing = place_trunk(part, "f32", 100, replace(runtime, placement=kind))
        assert placing.kind == kind
        assert "as runtime.placement says" in placing.text()
    assert placing.calls_at_once(100, runtime) == 1


def test_too_little_for_either_is_refused_with_the_ways_on(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = part_of(tmp_path, tiny_llama, runtime)
    monkeypatch.setattr("tasks.placement.free_memory", lambda _: 1_000_000)
    with pytest.raises(InputError, match=r"even streamed .* 1 MB are free; .*: stream"):
        place_trunk(part, "f32", 100, runtime)
    with pytest.raises(InputError, match=r"needs the whole trunk in memory, .*: resident"):
        load_trunk(part, "f32", runtime)
    assert load_trunk(part, "f32", replace(runtime, placement="resident"))


def test_rows_wait_where_there_is_room_for_them(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = part_of(tmp_path, tiny_llama, runtime)
    monkeypatch.setattr("tasks.placement.LAYERS_AT_ONCE", 1)
    size = trunk_bytes(part, "f32", 100, runtime)
    for calls in (1, 7):
        free = size.streamed + calls * 100 * size.row + 1
        placing = replace(
            place_trunk(part, "f32", 100, replace(runtime, placement="stream")), free=free
        )
        assert placing.calls_at_once(100, runtime) == calls
    plenty = replace(placing, free=1 << 50)
    assert plenty.calls_at_once(100, runtime) == (1 << 16) // 100
    assert plenty.calls_at_once(100, replace(runtime, device="cuda")) > 1 << 20


def test_a_whole_trunk_is_read_as_build_trunk_reads_it(
    tmp_path: Path, runtime: Runtime
) -> None:
    model = tiny_llama(TinySpec(layers=UNEVEN))
    part = part_of(tmp_path, tiny_llama, runtime)
    for dtype, compute in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        found = load_trunk(part, dtype, runtime)  # type: ignore[arg-type]  # one of both

        def read(name: str) -> torch.Tensor:
            return model.read(name).half().float()  # as the file rounds it

        wanted = build_trunk(model.arch, model.shapes, read, device="cpu", dtype=compute)
        for one, other in zip(
            [found.shared.embed_VH, *found.layers.parameters()],
            [wanted.shared.embed_VH, *wanted.layers.parameters()],
            strict=True,
        ):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)
    assert math.isfinite(float(found.hidden(torch.tensor([[1, 2]])).sum()))


def test_a_checkpoints_trunk_streams_too(tmp_path: Path, runtime: Runtime) -> None:
    folder = make_checkpoint(tmp_path / "hf", "qwen3_5_moe")
    part = open_model(folder, runtime).trunk
    ids_BT = torch.arange(24).view(2, 12)
    for dtype in ("f32", "bf16"):
        whole = load_trunk(part, dtype, runtime)
        streaming = replace(runtime, placement="stream")
        with placed_trunk(part, dtype, 24, streaming) as placed:
            assert isinstance(placed.trunk, StreamedTrunk)
            (found_BTH,) = placed.trunk.hidden([Call(ids_BT)])
        assert torch.equal(found_BTH, whole.hidden(ids_BT))
