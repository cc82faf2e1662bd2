"""Slots of a device: held while a stage computes in a flow run, by no cached one."""

import asyncio
import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from conf.errors import ConfigError
from store.store import Store
from tasks.slots import Slots, device_slot
from tasks.stage import Runtime, Stage, stage
from tests.test_tasks.sample_stages import Text

ROOM = str(Path(__file__).parents[2] / "tasks")
LIMIT = "test-gpu"
ENGINES = ("tasks.dask_pool", "tasks.ray_pool")
# What each stage computes on, as its own text says. A new stage belongs to one of them.
ON_DEVICE = {
    "dump_chain",
    "fold_model",
    "measure_draft",
    "probe_draft",
    "start_draft",
    "tap_layers",
    "time_decode",
    "train_draft",
    "trunk_shard",
    "write_shard",
}
ON_PROCESSORS = {
    "import_gguf",
    "pack_windows",
    "report",
    "rewrite_checkpoint",
    "rewrite_model",
    "sample_windows",
    "take_prompts",
    "train_demo_trunk",
    "train_tokenizer",
    "trunk_pass",
    "write_text",
}
TAKEN: list[int] = []  # slots taken, asked by each stage while it computes

pytestmark = [
    pytest.mark.usefixtures("prefect_server", "prefect_sockets"),
    # Prefect's clients leave sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def taken() -> int:
    with get_client(sync_client=True) as client:
        found = client.read_global_concurrency_limit_by_name(LIMIT)
    return int(found.active_slots)


@stage("compute", version=1, on_device=True)
def compute(out: Path, settings: Text, runtime: Runtime) -> Mapping[str, object]:
    TAKEN.append(taken())
    return {}


@stage("copy", version=1)
def copy(out: Path, settings: Text, runtime: Runtime) -> Mapping[str, object]:
    TAKEN.append(taken())
    return {}


@pytest.fixture(autouse=True)
def _limit(prefect_server: None) -> Iterator[None]:
    TAKEN.clear()

    async def made() -> None:
        async with get_client() as client:
            await client.upsert_global_concurrency_limit_by_name(LIMIT, 1)

    asyncio.run(made())
    yield
    assert taken() == 0


@flow
async def run(root: Path, slots: Slots) -> list[str]:
    runtime = Runtime(store=Store(root), slots=slots)
    compute(Text(text="x"), runtime)
    copy(Text(text="x"), runtime)
    return [event.state for event in runtime.ledger.events]


def test_only_a_stage_that_computes_takes_a_slot(tmp_path: Path) -> None:
    assert asyncio.run(run(tmp_path, Slots(LIMIT))) == ["ran", "ran"]
    assert TAKEN == [1, 0]


def test_a_cached_stage_waits_for_nobody(tmp_path: Path) -> None:
    asyncio.run(run(tmp_path, Slots(LIMIT)))
    here = Slots(LIMIT, PREFECT_API_URL.value())
    with device_slot(here):  # the only one is taken: whoever wanted it would wait
        assert taken() == 1
        assert asyncio.run(run(tmp_path, Slots(LIMIT))) == ["cached", "cached"]


def test_a_limit_that_is_not_there_is_named_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="prefect gcl create nobodys --limit 1"):
        asyncio.run(run(tmp_path, Slots("nobodys")))
    assert not [*tmp_path.glob("compute/*/record.json")]


def test_outside_a_flow_run_there_is_nobody_to_ask(tmp_path: Path) -> None:
    runtime = Runtime(store=Store(tmp_path), slots=Slots(LIMIT))
    compute(Text(text="x"), runtime)
    assert TAKEN == [0]
    assert Slots(LIMIT).for_workers() is None


def test_a_worker_of_a_flow_run_asks_its_server(tmp_path: Path) -> None:
    url = PREFECT_API_URL.value()

    @flow
    async def asked() -> Slots | None:
        return Slots(LIMIT).for_workers()

    slots = asyncio.run(asked())
    assert slots == Slots(LIMIT, url)
    with temporary_settings({PREFECT_API_URL: None}):  # as in a worker, which knows none
        compute(Text(text="x"), Runtime(store=Store(tmp_path), slots=slots))
    assert TAKEN == [1]


def test_every_stage_that_computes_on_the_device_takes_one() -> None:
    found: dict[str, bool] = {}
    for module in pkgutil.iter_modules([ROOM], "tasks."):
        if module.name in ENGINES:  # they make no stages, and import what need not be here
            continue
        for one in vars(import_module(module.name)).values():
            if isinstance(one, Stage):
                found[one.name] = one.on_device
    assert {name for name, on_device in found.items() if on_device} == ON_DEVICE
    assert {name for name, on_device in found.items() if not on_device} == ON_PROCESSORS
