"""A dump against decode rounds in plain loops, and its export."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from conf.schema import RunConfig
from flows.cli import app
from flows.dump import find_dump, refuse_undumped_layout
from store.arrays import open_array
from store.artifact import Artifact
from tasks.errors import InputError
from tests.oracles.rounds import all_rounds
from tests.oracles.trunk import Plain, decoder_layer, norm
from tests.small_heal import DEPTH, WINDOW, Ground, HealRun, heal

PLAIN = Plain(layers=2, head_dim=8, eps=1e-6, theta=1e6)


@pytest.fixture
def dumped(ground: Ground) -> HealRun:
    return heal(ground.config(dump=True), ground.store)


def test_before_is_every_round_of_the_student_s_draft(
    ground: Ground, dumped: HealRun
) -> None:
    out = dumped.path("dump_chain")
    tensors = {n: t.half().double().numpy() for n, t in ground.model.tensors.items()}
    ids = [int(i) for i in open_array(out, "ids")[3]]
    hidden = tensors["model.embed_tokens.weight"][ids]
    for layer in range(PLAIN.layers):
        hidden = decoder_layer(hidden, tensors, f"model.layers.{layer}.", PLAIN)
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
    line = ["dump", "last", "--numpy", str(out), "--store", str(root)]
    found = CliRunner().invoke(app, line)
    assert found.exit_code == 0, found.stderr
    artifact: Artifact = find_dump(root, "last")
    for name in artifact.manifest.arrays:
        plain = np.load(out / f"{name}.npy", mmap_mode="r")
        assert np.array_equal(plain, open_array(artifact.path, name)[:])
    assert {"meta.json", "README.md", "tensors.safetensors"} <= {
        path.name for path in out.iterdir()
    }
    again = CliRunner().invoke(app, line)
    assert (again.exit_code, "is not empty" in again.stderr) == (2, True)
    with pytest.raises(InputError, match="names 0 of the dumps"):
        find_dump(root, "f" * 40)


def test_another_layout_is_refused(ground: Ground) -> None:
    raw = ground.config(dump=True, train={"layout": "rows"})
    with pytest.raises(InputError, match="only exact chains can be dumped"):
        refuse_undumped_layout(RunConfig.model_validate(raw))
