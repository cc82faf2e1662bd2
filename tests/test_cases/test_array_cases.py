"""Arrays on disk: section F of the cases that other projects met."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from conf.load import check
from conf.schema import RunConfig
from flows.ground import lay_ground, open_sets
from store.arrays import Dtype, Kind, create_array, open_array
from store.errors import ArtifactDamaged
from store.store import Store
from tasks.model_file import open_model
from tasks.packed import read_windows
from tasks.stage import Runtime
from tasks.trunk_rows import TrunkRows, read_rows
from tests.small_heal import WINDOW, Ground, heal
from tests.test_flows.test_cache import a_shard, chunks, said

torch.set_num_threads(1)


def test_f1_two_writers_at_once_and_a_last_shard_that_is_short(
    finished: Ground, tmp_path: Path
) -> None:
    """50 windows in shards of 8: each shard has one writer, who writes all of it."""

    def lay(_: int) -> Runtime:
        runtime = Runtime(store=Store(tmp_path / "store"))
        config = check(RunConfig, finished.config(), "small")
        student = open_model(config.student, runtime)
        lay_ground(student, config, open_sets(config, runtime), runtime)
        return runtime

    with ThreadPoolExecutor(2) as pool:
        runtimes = list(pool.map(lay, range(2)))
    ran = [
        event.key
        for runtime in runtimes
        for event in runtime.ledger.events
        if event.name == "trunk_shard" and event.state == "ran"
    ]
    store = Store(tmp_path / "store")
    shards = [artifact for artifact in store.artifacts() if artifact.stage == "trunk_shard"]
    assert sorted(ran) == sorted(shard.key for shard in shards)
    sizes = sorted(len(open_array(shard.path, "hidden")) for shard in shards)
    assert sizes == [2, 8, 8, 8, 8, 8, 8]
    assert [problem for shard in shards for problem in store.deep_check(shard)] == []
    (rows,) = [artifact for artifact in store.artifacts() if artifact.stage == "trunk_pass"]
    (packed,) = [a for a in store.artifacts() if a.stage == "pack_windows"]
    found, length = read_rows(rows, runtimes[0]), read_windows(packed).length
    for window in range(50):
        assert found.read("hidden", window)[: length[window]].any(axis=1).all(), window


def test_f3_a_shard_cut_in_half_is_written_from_scratch(ground: Ground) -> None:
    shard = a_shard(ground)
    chunk = chunks(shard / "hidden")[0]
    whole = chunk.read_bytes()
    chunk.chmod(0o644)
    chunk.write_bytes(whole[: len(whole) // 2])
    run = heal(ground.config(), ground.store)
    assert run.made == ["trunk_shard"]
    assert chunk.read_bytes() == whole
    assert "trunk_shard: damaged, set aside and made again" in said(run)
    assert heal(ground.config(), ground.store).made == []


@pytest.mark.parametrize(("dtype", "kind"), [("f4", "raw"), ("bool", "packed")])
def test_f4_rows_that_are_all_zero_are_there(
    tmp_path: Path, dtype: Dtype, kind: Kind
) -> None:
    """Zero is the fill value of the one and not of the other."""
    rows = np.zeros((3, WINDOW, 4)).astype("f4" if dtype == "f4" else "?")
    rows[0] = rows[2] = 1
    create_array(tmp_path, "a", rows.shape, dtype, kind)[:] = rows
    assert len(chunks(tmp_path / "a")) == 3
    np.testing.assert_array_equal(open_array(tmp_path, "a")[:], rows)
    chunks(tmp_path / "a")[1].unlink()
    with pytest.raises(ArtifactDamaged, match="2 of 3 chunks"):
        open_array(tmp_path, "a")


def test_f5_bf16_rows_come_back_bit_for_bit(tmp_path: Path) -> None:
    """NaNs with a payload, both zeros, subnormals, infinities, the largest numbers."""
    bits = [0x7FC1, 0xFFA5, 0x8000, 0x0000, 0x0001, 0x8001, 0x7F80, 0xFF80, 0x7F7F, 0x3F80]
    rows = np.array([bits, bits[::-1]], np.uint16)[:, None, :]
    create_array(tmp_path, "hidden", rows.shape, "u2", "raw")[:] = rows
    stored = TrunkRows((tmp_path,), shard_windows=2, is_bf16=True)
    for window in range(2):
        found = stored.hidden(window)
        assert found.dtype == torch.bfloat16
        back = found.view(torch.int16).numpy().view(np.uint16)
        assert back.tolist() == rows[window].tolist()


@pytest.mark.parametrize("windows", [1, 7, 13])
@pytest.mark.parametrize(
    ("width", "dtype", "kind"), [(63, "f4", "raw"), (5, "u4", "packed")]
)
@pytest.mark.parametrize("together", [1, 4])
def test_f6_odd_shapes_come_back_exactly(
    tmp_path: Path, windows: int, width: int, dtype: Dtype, kind: Kind, together: int
) -> None:
    draw = np.random.default_rng(windows)
    rows = draw.integers(2**32, size=(windows, WINDOW, width), dtype=np.uint32)
    rows = rows.view(np.float32 if dtype == "f4" else np.uint32)
    shape = rows.shape
    array = create_array(tmp_path, "a", shape, dtype, kind, windows_per_chunk=together)
    for start in range(0, windows, together):
        array[start : start + together] = rows[start : start + together]
    back = open_array(tmp_path, "a")
    assert len(chunks(tmp_path / "a")) == -(-windows // together)
    for window in range(windows):
        assert back[window].tobytes() == rows[window].tobytes()
