"""The heal as a Prefect flow: what `prefect deployment run heal/…` runs."""

from prefect import flow
from prefect.context import SyncClientContext

from conf.load import load_config
from conf.schema import RunConfig
from flows.heal import heal_model
from flows.runs import recorded
from flows.runtime import command_line, open_runtime
from tasks.progress import make_progress


@flow(name="heal")
async def heal(conf: str, overrides: list[str] | None = None) -> dict[str, object]:
    """Heals as a configuration says, with `key=value` overrides; where the report lies.

    `async def`: a synchronous flow would join its heartbeat thread for most of a second.
    """
    config = load_config(RunConfig, conf, overrides or [])
    runtime = open_runtime(config.runtime, None, make_progress())
    command = command_line("run", conf, overrides or [])
    # One connection for all stages: each would open its own, and spend 30 ms on that.
    with (
        SyncClientContext.get_or_create(),
        recorded(runtime, command, config) as recording,
    ):
        files = heal_model(config, recording.runtime, command)
        recording.reported(files)
    return {"run": files.run, "report": str(files.page)}
