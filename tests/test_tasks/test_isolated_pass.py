"""The trunk pass with records apart: its keys, and its rows against plain loops."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from store.store import Store
from tasks.model_file import open_model
from tasks.pack import PackSettings, pack_windows
from tasks.packed import read_windows
from tasks.row_source import RowSource
from tasks.shard_rows import ShardSettings, WindowShard
from tasks.sources import open_set
from tasks.stage import Runtime
from tasks.trunk_pass import run_trunk
from tasks.trunk_rows import read_rows
from tests.oracles.trunk import Plain, raw_rows
from tests.small_heal import WINDOW, Ground, small_ground

torch.set_num_threads(1)

PLAIN = Plain(layers=2, head_dim=8, eps=1e-6, theta=1e6)
TOKENS = 6 * WINDOW
SETTINGS = {"topk": 8, "dtype": "f32", "window": WINDOW, "compile": False}
IDS = np.array([[7, 8, 9, 10]], np.uint32)


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return small_ground(tmp_path_factory.mktemp("laid"))


def shard_digest(record: list[int], length: int = 4) -> str:
    numbers = np.array([record], np.int64)
    return WindowShard(IDS, np.array([length]), numbers).content_digest


def test_off_the_keys_are_those_of_passes_before_it() -> None:
    settings = ShardSettings.model_validate(SETTINGS)
    assert settings.model_dump(mode="json") == SETTINGS
    assert settings.model_copy(update={"isolate": True}).model_dump()["isolate"] is True
    # Written out: sha256 of the JSON list of each window's ids as hexadecimal digits.
    plain = json.dumps(["070000000800000009000000"]).encode()
    shard = WindowShard(IDS, np.array([3]))
    assert shard.content_digest == hashlib.sha256(plain).hexdigest()


def test_on_a_border_is_part_of_the_key_and_its_number_is_not() -> None:
    assert shard_digest([0, 0, 1, 1]) != shard_digest([0, 1, 1, 1])
    assert shard_digest([0, 0, 1, 1]) == shard_digest([2, 2, 3, 3])
    assert shard_digest([0, 0, 0, 1], length=3) == shard_digest([0, 0, 0, 0], length=3)
    assert shard_digest([0] * 4) != WindowShard(IDS, np.array([4])).content_digest


def test_b2_rows_are_those_of_each_record_alone(laid: Ground, tmp_path: Path) -> None:
    runtime = Runtime(store=Store(tmp_path / "store"))
    data = open_set(f"{laid.data}@{TOKENS}", runtime.store.digests)
    packing = PackSettings(
        window=WINDOW, depth=2, split="windows", names=("own",), tokens=(TOKENS,)
    )
    windows = pack_windows(packing, runtime, sets=[data], tokenizer=None)
    packed = read_windows(windows)
    # Records of 40 tokens in windows of 32: the second begins at row 8 of window 1.
    assert packed.record[1].tolist() == [0] * 8 + [1] * 24
    trunk = open_model(laid.student, runtime).trunk
    settings = ShardSettings.model_validate({**SETTINGS, "isolate": True})
    rows = read_rows(run_trunk(trunk, windows, settings, 4, runtime), runtime)
    assert rows.is_isolated
    tensors = {n: t.half().double().numpy() for n, t in laid.model.tensors.items()}
    hidden = rows.read("hidden", 1).astype(np.float64)
    for part in (slice(0, 8), slice(8, 32)):
        alone = raw_rows(packed.ids[1, part].tolist(), tensors, PLAIN)
        # f32 against f64: values near 1, two layers deep, lose a few hundred ulps (2**-23).
        np.testing.assert_allclose(hidden[part], alone, rtol=1e-4, atol=1e-4)
    batch = RowSource(packed, rows).batch([1])
    assert batch.record_BT is not None
    assert batch.record_BT.tolist() == packed.record[1:2].tolist()
