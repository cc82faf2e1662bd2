"""Outputs that workers write and measure: the files of a heal without workers."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from flows.output_work import OutputWork
from store.store import Store
from tasks.stage import Runtime
from tests.hands import DASK, Hands, in_threads
from tests.small_heal import Ground, heal

CODECS = ("q8_row", "f32")


def config_of(ground: Ground, folder: Path) -> dict[str, object]:
    outputs = [{"codec": codec, "path": str(folder / f"{codec}.cmf")} for codec in CODECS]
    return ground.config(outputs=outputs)


def with_workers(store: Path) -> Runtime:
    return Runtime(store=Store(store), runner=DASK)


def test_workers_write_and_measure_what_this_process_would(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = in_threads(monkeypatch)
    monkeypatch.setattr("tasks.runner.LOOK_EVERY_S", 0.01)
    config = config_of(ground, tmp_path)
    run = heal(config, ground.store, with_workers(ground.store))
    titles = [order.work.title for order in hands.orders]
    assert titles == ["output q8_row", "output f32"]
    assert run.made[:4] == [
        f"{name} {codec}"
        for codec in CODECS
        for name in ("rewrite_model", "measure_draft healed")
    ]
    files = {codec: (tmp_path / f"{codec}.cmf").read_bytes() for codec in CODECS}
    for made in ground.store.glob("rewrite_model/*/record.json"):
        Store(ground.store).set_aside("rewrite_model", made.parent.name)
    heal(config, ground.store)
    assert {c: (tmp_path / f"{c}.cmf").read_bytes() for c in CODECS} == files
    # Found again, by a run with workers too: none is asked.
    again = heal(config, ground.store, with_workers(ground.store))
    assert (again.made, len(hands.orders)) == ([], 2)


def test_one_output_is_written_here(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = in_threads(monkeypatch, Hands())
    outputs = [{"codec": "f32", "path": str(tmp_path / "f32.cmf")}]
    run = heal(ground.config(outputs=outputs), ground.store, with_workers(ground.store))
    assert "rewrite_model f32" in run.made
    assert not hands.orders


def test_a_worker_gets_paths_that_mean_something_in_its_folder(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[OutputWork] = []

    def kept(works: list[OutputWork], _runtime: Runtime) -> None:
        seen.extend(works)

    monkeypatch.setattr("flows.heal.write_ahead", kept)
    monkeypatch.chdir(ground.student.parent)
    beside = replace(ground, student=Path(ground.student.name))
    heal(beside.config(), ground.store)
    (work,) = seen
    assert not work.models[0].path.is_absolute()
    assert work.elsewhere().models[0].path == ground.student


def test_a_cached_run_imports_no_engine_and_starts_no_cluster(
    ground: Ground, tmp_path: Path
) -> None:
    file = tmp_path / "small.yaml"
    raw = config_of(ground, tmp_path) | {"runtime": {"device": "cpu", "threads": 1}}
    heal(raw, ground.store)
    raw["runtime"] = {"device": "cpu", "threads": 1, "runner": "dask", "workers": 2}
    file.write_text(yaml.safe_dump(raw))
    script = (
        "import sys\n"
        "from conf.load import load_config\n"
        "from conf.schema import RunConfig\n"
        "from flows.heal import heal_story\n"
        "from flows.runtime import open_runtime\n"
        "from tasks.progress import SilentProgress\n"
        f"config = load_config(RunConfig, {str(file)!r})\n"
        f"runtime = open_runtime(config.runtime, {str(ground.store)!r}, SilentProgress())\n"
        "heal_story(config, runtime, 'heal run small.yaml')\n"
        "print({e.state for e in runtime.ledger.events})\n"
        "print({'distributed', 'dask', 'ray', 'torch', 'prefect'} & set(sys.modules))\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert told.stdout == "{'cached'}\nset()\n"
