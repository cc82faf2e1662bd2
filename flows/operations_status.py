"""What `heal status` says of server, worker and deployments."""

from dataclasses import asdict, dataclass

from conf.service import Site
from flows.operations import POOL, SERVER, WORKER
from flows.operations_api import Api
from flows.service import Service


@dataclass(frozen=True)
class ServiceStatus:
    """A site's services as they are now; None where the server has to know and is away."""

    url: str
    server: str
    worker: str
    deployments: tuple[str, ...] | None
    runs: tuple[str, ...] | None
    scheduled: tuple[str, ...] | None


def services_of(site: Site) -> ServiceStatus | None:
    """How the site's services are; None where none was ever started."""
    if not site.books.is_dir():
        return None
    server, worker = Service(site, SERVER), Service(site, WORKER)
    url = server.about or site.url
    api = Api(url)
    alive = api.is_healthy()
    state = "running" if alive else "starting or stuck"
    return ServiceStatus(
        url=url,
        server=state if server.is_running else "stopped",
        worker=_worker_state(worker, api, alive=alive),
        deployments=tuple(api.deployments()) if alive else None,
        runs=_names(api, "RUNNING", "PENDING", "CANCELLING") if alive else None,
        scheduled=_due(api) if alive else None,
    )


def _worker_state(worker: Service, api: Api, *, alive: bool) -> str:
    if not worker.is_running:
        return "stopped"
    if not alive:
        return "running, waiting for the server"
    return "running" if api.online_workers(POOL) else "running, not heard of lately"


def _names(api: Api, *states: str) -> tuple[str, ...]:
    return tuple(f"{run['name']} ({run['state_name']})" for run in api.runs(*states))


def _due(api: Api) -> tuple[str, ...]:
    """The next scheduled run of each deployment, as the server keeps time: UTC."""
    first: dict[str, str] = {}
    scheduled = api.runs("SCHEDULED")
    for run in sorted(scheduled, key=lambda run: str(run["expected_start_time"])):
        if run["deployment_id"]:
            first.setdefault(run["deployment_id"], str(run["expected_start_time"]))
    return tuple(f"{when[:16].replace('T', ' ')} UTC" for when in first.values())


def services_text(status: ServiceStatus) -> str:
    """A line for each service, for people."""
    lines = [f"server  {status.server} at {status.url}", f"worker  {status.worker}"]
    for title, found in (
        ("deployments", status.deployments),
        ("under way", status.runs),
        ("next", status.scheduled),
    ):
        if found:
            lines.append(f"{title}  {', '.join(found)}")
    return "\n".join(lines) + "\n"


def services_json(status: ServiceStatus | None) -> dict[str, object] | None:
    """The same for scripts; null where none was ever started."""
    return None if status is None else asdict(status)
