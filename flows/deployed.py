"""What deployments run: the heal and the re-heal as Prefect flows (docs/operations.md)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prefect import flow
from prefect import runtime as prefect_runtime
from prefect.artifacts import acreate_table_artifact
from prefect.context import SyncClientContext
from prefect.exceptions import TerminationSignal

from conf.errors import ConfigError
from conf.load import load_config
from conf.nightly import NightlyConfig
from conf.schema import RunConfig
from flows.deployed_progress import FlowProgress
from flows.heal import heal_recorded
from flows.inputs import load_heal
from flows.reheal import outcomes_json, refuse_failures, reheal_models
from flows.reheal_hook import tell_failures
from flows.runtime import open_runtime
from flows.typed import command_line
from store.keys import digest_of
from tasks.interrupt import SIGNALS, Stopped, stopping_on_signals

NAME_DIGITS = 4


def heal_run_name() -> str:
    """`heal smollm2 · tail_kl · 3f2a`: the student, the loss, the settings' digest."""
    given = prefect_runtime.flow_run.parameters
    conf, overrides = str(given["conf"]), given.get("overrides") or []
    try:
        config = load_config(RunConfig, conf, overrides)
    except ConfigError:
        return f"heal {conf} · not a valid configuration"
    digest = digest_of(config.model_dump(mode="json", exclude={"runtime"}))[:NAME_DIGITS]
    return f"heal {Path(config.student).stem} · {config.train.loss} · {digest}"


def reheal_run_name() -> str:
    """`reheal nightly · on the event`, or without the end for a schedule and by hand."""
    given = prefect_runtime.flow_run.parameters
    end = f" · {given['announced']} was announced" if given.get("announced") else ""
    return f"reheal {given.get('conf', 'nightly')}{end}"


@contextmanager
def _deployed() -> Iterator[None]:
    # One connection for all stages: each would open its own, and spend 30 ms on that.
    # Our own handler: a cancelled run ends after its step and saves it, not in the midst.
    try:
        with SyncClientContext.get_or_create(), stopping_on_signals(SIGNALS):
            yield
    except Stopped as stopped:  # as Prefect's own handler would have ended it
        raise TerminationSignal(SIGNALS.signal) from stopped


@flow(name="heal", flow_run_name=heal_run_name)
async def heal(conf: str, overrides: list[str] | None = None) -> dict[str, object]:
    """Heals as a configuration says, with `key=value` overrides; where the report lies.

    `async def`: a synchronous flow would join its heartbeat thread for most of a second.
    """
    config = load_heal(conf, overrides or [])
    runtime = open_runtime(config.runtime, None, FlowProgress())
    command = command_line("run", conf, set=overrides)
    with _deployed():
        files = heal_recorded(config, runtime, command)
    return {"run": files.run, "report": str(files.page)}


@flow(name="reheal", flow_run_name=reheal_run_name)
async def reheal(conf: str = "nightly", announced: str | None = None) -> dict[str, object]:
    """Heals every watched model that is due; `announced` is what an event told of.

    Fails, after all were tried, if one could not be healed or came out worse.
    """
    config = load_config(NightlyConfig, conf)
    progress = FlowProgress()
    with _deployed():
        found = reheal_models(config, None, progress, announced)
    table = outcomes_json(found)
    await acreate_table_artifact(table, key="reheal", description="before → after")
    tell_failures(config.on_failure, found, progress)
    refuse_failures(found)
    return {"models": table}
