"""Stages inside real flow runs: the records of plain calls, and Prefect's own view."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext

from store.errors import DiskFull, NotJson
from store.store import Store
from tasks.stage import Runtime, stage
from tests.test_tasks.sample_stages import RAN, Text, write_text

pytestmark = [
    pytest.mark.usefixtures("prefect_server", "prefect_sockets"),
    # Prefect's clients leave sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@stage("go_wrong", version=1)
def go_wrong(out: Path, settings: Text, runtime: Runtime) -> Mapping[str, object]:
    if settings.text == "full":
        Path("/dev/full").write_bytes(b"x")
    return {"loss": np.float32(1)}


@flow
async def write(root: Path, texts: list[str]) -> tuple[str, list[str]]:
    """The flow run's id and the states of its stage calls."""
    runtime = Runtime(store=Store(root))
    for text in texts:
        write_text(Text(text=text), runtime, label=f"of {text}")
    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    return str(context.flow_run.id), [e.state for e in runtime.ledger.events]


def offline(root: Path, text: str) -> str:
    runtime = Runtime(store=Store(root))
    write_text(Text(text=text), runtime)
    return runtime.ledger.events[0].state


def files_of(root: Path) -> list[str]:
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*.json"))


async def task_states(flow_run: str) -> dict[str, str]:
    """Prefect's own state of each task run, by the task run's name less its number."""
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    only = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))
    async with get_client() as client:
        for _ in range(50):  # the server takes task runs in by and by
            runs = await client.read_task_runs(flow_run_filter=only)
            states = {r.name.rpartition("-")[0]: r.state_name or "" for r in runs}
            if len(states) == 2 and set(states.values()) <= {"Cached", "Completed"}:
                return states
            await asyncio.sleep(0.1)
    return states


def test_flow_runs_and_plain_calls_hit_each_others_artifacts(tmp_path: Path) -> None:
    assert offline(tmp_path, "x") == "ran"
    by_hand = files_of(tmp_path)
    run, states = asyncio.run(write(tmp_path, ["x", "y"]))
    assert states == ["cached", "ran"]
    assert offline(tmp_path, "y") == "cached"
    assert RAN == ["x", "y"]
    assert asyncio.run(task_states(run)) == {
        "write_text of x": "Cached",
        "write_text of y": "Completed",
    }
    # One record more, its neighbours the same: nothing else of Prefect's lies in the store.
    assert len(files_of(tmp_path)) == 2 * len(by_hand)
    records = [json.loads(p.read_bytes()) for p in tmp_path.glob("*/*/record.json")]
    assert records[0].keys() == records[1].keys()
    assert {r["metadata"]["serializer"]["type"] for r in records} == {"json"}


def test_damage_is_mended_inside_a_flow_run(tmp_path: Path) -> None:
    asyncio.run(write(tmp_path, ["x"]))
    (text,) = tmp_path.glob("write_text/*/text")
    text.unlink()
    assert asyncio.run(write(tmp_path, ["x", "x"]))[1] == ["ran", "cached"]
    assert text.read_text() == "x"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [("full", DiskFull, "no space is left"), ("float", NotJson, r"numbers\.loss")],
)
def test_a_failure_reaches_the_caller_and_leaves_no_record(
    tmp_path: Path, text: str, error: type[Exception], message: str
) -> None:
    @flow
    async def fail() -> None:
        go_wrong(Text(text=text), Runtime(store=Store(tmp_path)))

    with pytest.raises(error, match=message):
        asyncio.run(fail())
    assert list(tmp_path.rglob("record.json")) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["go_wrong", "locks"]
