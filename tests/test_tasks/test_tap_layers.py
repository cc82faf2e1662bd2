"""Stored taps against plain loops over the same held-out windows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from store.arrays import open_array
from store.artifact import Artifact
from tasks.errors import InputError
from tasks.packed import Packed, read_windows
from tasks.stage import Runtime
from tasks.trunk_rows import read_rows
from tests.builders import model_of, write_model
from tests.oracles.trunk import Plain, decoder_layer
from tests.small_heal import WINDOW, Ground, HealRun, heal

torch.set_num_threads(1)

PLAIN = Plain(layers=2, head_dim=8, eps=1e-6, theta=1e6)
LAYERS = [1, 0]


def tapped(ground: Ground, **changes: object) -> HealRun:
    return heal(ground.config(taps={"layers": LAYERS}, **changes), ground.store)


def artifact(run: HealRun, stage: str) -> Artifact:
    found = run.runtime.store.load(stage, run.path(stage).name)
    assert found is not None
    return found


def layer_rows(
    ground: Ground, ids: list[int]
) -> list[np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    """Each layer's output, f64, of the model as its file rounds it."""
    tensors = {n: t.half().double().numpy() for n, t in ground.model.tensors.items()}
    rows = tensors["model.embed_tokens.weight"][ids]
    found = []
    for i in range(PLAIN.layers):
        rows = decoder_layer(rows, tensors, f"model.layers.{i}.", PLAIN)
        found.append(rows)
    return found


def test_taps_are_the_layers_rows_on_held_out_windows(ground: Ground) -> None:
    # The last held-out record is cut by the cap, so the last window is short.
    short = [{"path": str(ground.data), "name": "own", "tokens": 1590}]
    run = tapped(ground, data=short)
    packed = read_windows(artifact(run, "pack_windows"))
    rows = read_rows(artifact(run, "trunk_pass"), run.runtime)
    out = run.path("tap_layers")
    read = {n: open_array(out, n)[:] for n in ("taps", "ids", "own", "length", "window")}
    assert read["taps"].dtype == np.float16
    assert read["taps"].shape == (len(packed.held_out), 2, WINDOW, 32)
    assert read["window"].tolist() == packed.held_out
    assert packed.length[packed.held_out[-1]] < WINDOW
    for place, window in enumerate(packed.held_out):
        length = int(packed.length[window])
        assert read["length"][place] == length
        assert read["ids"][place].tolist() == packed.ids[window].tolist()
        assert read["own"][place].tolist() == rows.read("topk_id", window)[:, 0].tolist()
        assert not read["taps"][place, :, length:].any()
    wanted = layer_rows(
        ground, packed.ids[packed.held_out[0], : length_of(packed)].tolist()
    )
    for at, layer in enumerate(LAYERS):
        found = read["taps"][0, at, : length_of(packed)].astype(np.float64)
        # f16 keeps 11 bits.
        np.testing.assert_allclose(found, wanted[layer], rtol=2**-11, atol=1e-4)


def length_of(packed: Packed) -> int:
    return int(packed.length[packed.held_out[0]])


def test_taps_are_cached_by_layers_and_streamed_alike(ground: Ground) -> None:
    first = tapped(ground)
    assert "tap_layers" in first.made
    assert tapped(ground).made == []
    out = first.path("tap_layers")
    taps = open_array(out, "taps")[:]
    runtime = Runtime(store=first.runtime.store, placement="stream")
    (key,) = {e.key for e in first.runtime.ledger.events if e.name == "tap_layers"}
    first.runtime.store.set_aside("tap_layers", key)
    again = heal(ground.config(taps={"layers": LAYERS}), ground.store, runtime)
    assert again.made == ["tap_layers"]
    assert np.array_equal(open_array(again.path("tap_layers"), "taps")[:], taps)


def test_a_layer_that_is_not_there_is_refused_before_any_pass(
    ground: Ground, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"names 2, 7: .* has 2 layers, counted from 0"):
        heal(ground.config(taps={"layers": [0, 2, 7]}), tmp_path / "empty")
    assert not (tmp_path / "empty" / "trunk_shard").exists()


def test_rows_that_f16_cannot_hold_are_refused(ground: Ground, tmp_path: Path) -> None:
    tensors = ground.model.tensors
    name = "model.layers.0.mlp.down_proj.weight"
    loud = model_of(ground.model.arch, {**tensors, name: tensors[name] * 1e6})
    student = write_model(tmp_path / "loud.cmf", loud, dtype="f32")
    changed = replace(ground, student=student)
    with pytest.raises(InputError, match=r"layer [01] gives [0-9,]+ at row \d+ of window"):
        tapped(changed)
