"""A dump against decode rounds in plain loops, and its export."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from conf.load import check
from conf.schema import RunConfig
from flows.cli import app
from flows.dump import find_dump
from flows.heal import heal_recorded
from store.arrays import open_array
from store.artifact import Artifact
from store.runs import runs
from store.store import Store
from tasks.errors import InputError
from tasks.stage import Runtime
from tests.oracles.layouts import rows_chains
from tests.oracles.rounds import all_rounds
from tests.oracles.trunk import Plain, Rows, decoder_layer, norm
from tests.small_heal import DEPTH, WINDOW, Ground, HealRun, heal

PLAIN = Plain(layers=2, head_dim=8, eps=1e-6, theta=1e6)


@pytest.fixture
def dumped(ground: Ground) -> HealRun:
    return heal(ground.config(dump=True), ground.store)


def plain_rows(ground: Ground, ids: list[int]) -> tuple[dict[str, Rows], Rows]:
    """The student's tensors as it stores them, and its trunk's rows of a window; f64."""
    tensors = {n: t.half().double().numpy() for n, t in ground.model.tensors.items()}
    hidden = tensors["model.embed_tokens.weight"][ids]
    for layer in range(PLAIN.layers):
        hidden = decoder_layer(hidden, tensors, f"model.layers.{layer}.", PLAIN)
    return tensors, hidden


def test_before_is_every_round_of_the_student_s_draft(
    ground: Ground, dumped: HealRun
) -> None:
    out = dumped.path("dump_chain")
    ids = [int(i) for i in open_array(out, "ids")[3]]
    tensors, hidden = plain_rows(ground, ids)
    output = open_array(out, "before_output")[3]
    top_id, top_p = (open_array(out, f"before_top_{of}")[3] for of in ("id", "p"))
    assert output.shape == (DEPTH, WINDOW, 32)
    rounds = all_rounds(ids, hidden, DEPTH, tensors, PLAIN)
    for (start, step), wanted in rounds.items():
        found = output[step - 1, start].astype(np.float64)
        # f16 keeps 11 bits; f32 sums of other order below.
        np.testing.assert_allclose(found, wanted, rtol=2**-10, atol=2e-3)
        gain = tensors["model.mtp.norm.weight"]
        logits = tensors["model.embed_tokens.weight"] @ norm(wanted, gain, PLAIN.eps)
        q = np.exp(logits - logits.max())
        best = np.sort(q / q.sum())[::-1][:4]
        np.testing.assert_allclose(top_p[step - 1, start], best, rtol=1e-3)
        assert top_id[step - 1, start, 0] == logits.argmax()
    for step in range(1, DEPTH + 1):
        assert not output[step - 1, WINDOW - step :].any()


def test_the_rest_is_all_that_a_draft_needs(ground: Ground, dumped: HealRun) -> None:
    out = dumped.path("dump_chain")
    meta = json.loads((out / "meta.json").read_text())
    assert (meta["layout"], meta["sides"]) == ("exact", ["before", "after"])
    assert (meta["hidden"], meta["chain"], meta["window"]) == (32, DEPTH, WINDOW)
    tensors = load_file(out / "tensors.safetensors")
    source = ground.model.tensors
    for name, of in {"embed": "model.embed_tokens", "eh_proj": "model.mtp.eh_proj"}.items():
        assert tensors[name].dtype == np.float16
        assert np.array_equal(tensors[name], source[f"{of}.weight"].half().numpy())
    assert np.array_equal(tensors["head"], tensors["embed"])
    for name, of in {
        "enorm": "mtp.enorm",
        "hnorm": "mtp.hnorm",
        "mtp_norm": "mtp.norm",
        "norm": "norm",
    }.items():
        assert tensors[name].dtype == np.float32
        wanted = source[f"model.{of}.weight"].half().float().numpy()
        assert np.array_equal(tensors[name], wanted)
    changed = open_array(out, "after_output")[:] != open_array(out, "before_output")[:]
    assert changed.any()
    assert open_array(out, "tp")[:].shape == (meta["windows"], WINDOW, meta["topk"])
    assert heal(ground.config(dump=True), ground.store).made == []


def test_numpy_files_hold_the_same(dumped: HealRun, tmp_path: Path) -> None:
    root, out = dumped.runtime.store.root, tmp_path / "plain"
    key = dumped.path("dump_chain").name
    line = ["dump", key[:8], "--numpy", str(out), "--store", str(root)]
    found = CliRunner().invoke(app, line)
    assert found.exit_code == 0, found.stderr
    artifact: Artifact = find_dump(root, key)
    for name in artifact.manifest.arrays:
        plain = np.load(out / f"{name}.npy", mmap_mode="r")
        assert np.array_equal(plain, open_array(artifact.path, name)[:])
    assert {"meta.json", "README.md", "tensors.safetensors"} <= {
        path.name for path in out.iterdir()
    }
    again = CliRunner().invoke(app, line)
    assert (again.exit_code, "is not empty" in again.stderr) == (2, True)
    with pytest.raises(InputError, match="no run and no dump begins with 'fff"):
        find_dump(root, "f" * 40)


@pytest.mark.parametrize(
    "train", [{"layout": "rows"}, {"layout": "stride", "stride": DEPTH}]
)
def test_other_layouts_are_dumped_as_rows(ground: Ground, train: dict[str, object]) -> None:
    found = heal(ground.config(dump=True, train={"lr": 1e-3} | train), ground.store)
    out = found.path("dump_chain")
    assert json.loads((out / "meta.json").read_text())["layout"] == "rows"
    ids = [int(i) for i in open_array(out, "ids")[3]]
    tensors, hidden = plain_rows(ground, ids)
    trained = load_file(found.path("train_draft") / "draft.safetensors")
    after = tensors | {n: t.astype(np.float64) for n, t in trained.items()}
    for side, weights in {"before": tensors, "after": after}.items():
        output = open_array(out, f"{side}_output")[3]
        expected = rows_chains(ids, hidden, DEPTH, weights, PLAIN)
        for (start, step), wanted in expected.items():
            place = f"{side}, start {start}, step {step}"
            row = output[step - 1, start].astype(np.float64)
            np.testing.assert_allclose(row, wanted, rtol=2**-10, atol=2e-3, err_msg=place)
        exact = all_rounds(ids, hidden, DEPTH, weights, PLAIN)
        apart = [abs(exact[at] - expected[at]).max() for at in expected if at[1] > 1]
        assert max(apart) > 0.02  # else the one could pass for the other


def test_a_dump_is_found_by_its_run(ground: Ground) -> None:
    runtime = Runtime(store=Store(ground.store))
    config = check(RunConfig, ground.config(dump=True), "small")
    heal_recorded(config, runtime, "heal run small.yaml")
    (key,) = {e.key for e in runtime.ledger.events if e.name == "dump_chain"}
    (run,) = runs(ground.store)
    for name in ("last", run.record.id, run.record.id[:17], key[:8], f"dump_chain/{key}"):
        assert find_dump(ground.store, name).key == key
    without = check(RunConfig, ground.config(), "small")
    heal_recorded(without, Runtime(store=Store(ground.store)), "heal run other.yaml")
    assert find_dump(ground.store, "last").key == key
    newest = runs(ground.store)[0].record.id
    with pytest.raises(InputError, match=f"run {newest} is done and has no dump"):
        find_dump(ground.store, newest)
