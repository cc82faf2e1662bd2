"""The rows a pass stores, against a plain forward of the same windows."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from conf.errors import ConfigError
from nets.layer import run_layer
from nets.layer_geometry import LayerGeometry
from store.store import Store
from tasks.model_file import open_model
from tasks.packed import Packed, read_windows
from tasks.shard_rows import ShardSettings
from tasks.stage import Runtime
from tasks.trunk_pass import resolve_compile, run_trunk
from tasks.trunk_rows import TrunkRows, read_rows
from tests.builders import tiny_qwen3_5, write_model
from tests.oracles.trunk import Plain, logits, raw_rows
from tests.small_heal import WINDOW, Ground, packed

PLAIN = Plain(layers=2, head_dim=8, eps=1e-6, theta=1e6)
SHARD_WINDOWS = 3
TOKENS = 7 * WINDOW + 20  # seven windows and a short one


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime(store=Store(tmp_path / "store"))


def passed(
    finished: Ground, runtime: Runtime, settings: ShardSettings
) -> tuple[Packed, TrunkRows]:
    windows = packed(finished, runtime, TOKENS)
    trunk = open_model(finished.student, runtime).trunk
    rows = run_trunk(trunk, windows, settings, SHARD_WINDOWS, runtime)
    return read_windows(windows), read_rows(rows, runtime)


def f64(finished: Ground) -> dict[str, NDArray[np.float64]]:
    """The model's tensors as the file rounds them."""
    tensors = finished.model.tensors.items()
    return {name: tensor.half().double().numpy() for name, tensor in tensors}


def is_close(found: NDArray[np.generic], wanted: NDArray[np.float64]) -> bool:
    """f32 against f64: values near 1, two layers deep, lose a few hundred ulps (2**-23)."""
    return np.allclose(found.astype(np.float64), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("window", [0, 4, 7])  # first and second shard, the short one
def test_rows_are_the_plain_forwards(
    finished: Ground, runtime: Runtime, window: int
) -> None:
    settings = ShardSettings(topk=8, dtype="f32", window=WINDOW, compile=False)
    packed, rows = passed(finished, runtime, settings)
    length = int(packed.length[window])
    ids = [int(i) for i in packed.ids[window, :length]]
    raw = raw_rows(ids, f64(finished), PLAIN)
    z = logits(raw, f64(finished), PLAIN)
    assert is_close(rows.read("hidden", window)[:length], raw)
    logsumexp = np.log(np.exp(z).sum(-1))
    assert is_close(rows.read("logsumexp", window)[:length], logsumexp)
    best = np.sort(np.exp(z - logsumexp[:, None]))[:, ::-1][:, :8]
    assert is_close(rows.read("topk_p", window)[:length], best)
    top_id = rows.read("topk_id", window)[:length].astype(np.int64)
    # The ids name tokens with those probabilities, in that order (ties may swap).
    log_p = np.take_along_axis(z, top_id, 1) - logsumexp[:, None]
    assert is_close(log_p, np.log(best))
    for name in ("hidden", "logsumexp", "topk_p", "topk_id"):
        assert not rows.read(name, window)[length:].any()


def test_calls_for_compiled_code_are_of_one_size(
    finished: Ground, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = set()

    def run(
        layer: nn.Module, x_BTH: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None
    ) -> Tensor:
        sizes.add(tuple(x_BTH.shape[:2]))
        return run_layer(layer, x_BTH, cos, sin, mask)

    monkeypatch.setattr("nets.trunk.compiled_layer", lambda: run)
    monkeypatch.setattr("tasks.shard_rows.ROWS_A_CALL", 2 * WINDOW)
    plain = ShardSettings(topk=8, dtype="f32", window=WINDOW, compile=False)
    _, wanted = passed(finished, runtime, plain)
    _, rows = passed(finished, runtime, plain.model_copy(update={"compile": True}))
    assert sizes == {(2, WINDOW)}
    for window in range(8):  # shards of three windows, so each second call is filled up
        found = rows.read("hidden", window)
        # The same products in batches of another size.
        assert np.allclose(found, wanted.read("hidden", window), atol=1e-5)


@pytest.mark.parametrize(
    ("tokens", "widths", "has_compiler", "is_on"),
    [
        (150_000, 1, True, True),
        (149_999, 1, True, False),
        (299_999, 2, True, False),
        (300_000, 2, True, True),
        (300_000, 1, False, False),
    ],
)
def test_compile_auto_is_on_where_it_pays(  # noqa: PLR0913 — a row of the table each
    finished: Ground,
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
    tokens: int,
    widths: int,
    *,
    has_compiler: bool,
    is_on: bool,
) -> None:
    layers = [LayerGeometry(4, 2, 32 * (1 + i % widths)) for i in range(2)]
    geometry = SimpleNamespace(layers=layers, family=SimpleNamespace(not_compiled=None))
    monkeypatch.setattr("tasks.trunk_pass.trunk_geometry", lambda *_: geometry)
    monkeypatch.setattr("tasks.trunk_pass.has_compiler", lambda: has_compiler)
    # The tiny model: two layers of 32, where the rule was measured on 30 of 576.
    monkeypatch.setattr("tasks.trunk_pass.COMPILE_FROM", 150_000 * 2 * 32)
    windows = packed(finished, runtime, TOKENS)
    counted = windows.manifest.model_copy(update={"numbers": {"tokens": tokens}})
    trunk = open_model(finished.student, runtime).trunk
    assert resolve_compile("auto", trunk, replace(windows, manifest=counted)) is is_on


def test_compile_without_a_compiler_is_refused(
    finished: Ground, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.trunk_pass.has_compiler", lambda: False)
    windows = packed(finished, runtime, TOKENS)
    trunk = open_model(finished.student, runtime).trunk
    assert resolve_compile(wanted=False, trunk=trunk, windows=windows) is False
    with pytest.raises(ConfigError, match=r"there is no C\+\+ compiler"):
        resolve_compile(wanted=True, trunk=trunk, windows=windows)


def test_layers_that_are_not_compiled_say_why(
    tmp_path: Path, finished: Ground, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.trunk_pass.has_compiler", lambda: True)
    monkeypatch.setattr("tasks.trunk_pass.COMPILE_FROM", 0)
    windows = packed(finished, runtime, TOKENS)
    path = write_model(tmp_path / "hybrid.cmf", tiny_qwen3_5())
    trunk = open_model(path, runtime).trunk
    assert resolve_compile("auto", trunk, windows) is False
    with pytest.raises(ConfigError, match=r"Qwen3\.5 layers are not compiled, the delta"):
        resolve_compile(wanted=True, trunk=trunk, windows=windows)


def test_bf16_rows_are_stored_bit_for_bit(finished: Ground, runtime: Runtime) -> None:
    exact = ShardSettings(topk=8, dtype="f32", window=WINDOW, compile=False)
    _, f32_rows = passed(finished, runtime, exact)
    coarse = exact.model_copy(update={"dtype": "bf16"})
    _, rows = passed(finished, runtime, coarse)
    bits = rows.read("hidden", 2)
    assert bits.dtype == np.uint16
    hidden = rows.hidden(2)
    assert hidden.dtype == torch.bfloat16
    widened = (bits.astype(np.uint32) << 16).view(np.float32)
    assert np.array_equal(hidden.float().numpy(), widened)
    # 8 bits of mantissa through two layers.
    reference = f32_rows.read("hidden", 2).astype(np.float32)
    assert np.abs(widened - reference).max() < 0.1 * np.abs(reference).max()


def test_more_kept_tokens_than_the_vocabulary_has(
    finished: Ground, runtime: Runtime
) -> None:
    settings = ShardSettings(topk=1000, dtype="f32", window=WINDOW, compile=False)
    _, rows = passed(finished, runtime, settings)
    top_p = rows.read("topk_p", 1)
    assert top_p.shape == (WINDOW, 300)
    assert np.allclose(top_p.sum(-1), 1, atol=1e-5)
