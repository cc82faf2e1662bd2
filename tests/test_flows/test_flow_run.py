"""The heal inside a Prefect flow run and without a server: the same artifacts."""

import asyncio
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from conf.load import load_config
from conf.schema import RunConfig
from flows.deployed import heal
from flows.heal import run_heal
from flows.typed import command_line
from store.store import Store
from tasks.stage import Runtime
from tests.small_heal import Ground

pytestmark = [
    pytest.mark.usefixtures("prefect_server", "prefect_sockets"),
    # Prefect's clients leave sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def test_the_entrypoint_of_deployments_is_the_flow() -> None:
    assert import_module("flows.heal").heal is heal


def records(store: Path) -> dict[str, int]:
    """Every finished artifact, and when it was finished."""
    return {str(p.parent): p.stat().st_mtime_ns for p in store.glob("*/*/record.json")}


def states(ground: Ground, config: Path, overrides: list[str]) -> set[str]:
    runtime = Runtime(store=Store(ground.store))
    command = command_line("run", config, set=overrides)
    run_heal(load_config(RunConfig, config, overrides), runtime, command)
    return {event.state for event in runtime.ledger.events}


def test_a_flow_run_and_a_plain_run_hit_each_others_artifacts(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEAL_STORE", str(ground.store))
    config = tmp_path / "small.yaml"
    config.write_text(yaml.safe_dump(ground.config()))
    assert states(ground, config, []) == {"cached", "ran"}  # the report names its config
    before = records(ground.store)
    told = asyncio.run(heal(str(config)))
    assert records(ground.store) == before
    assert Path(str(told["report"])).is_file()
    overrides = ["train.lr=6e-3"]
    asyncio.run(heal(str(config), overrides))
    new = records(ground.store).keys() - before.keys()
    assert sorted(Path(path).parent.name for path in new) == [
        "measure_draft",
        "report",
        "rewrite_model",
        "train_draft",
    ]
    assert states(ground, config, overrides) == {"cached"}
