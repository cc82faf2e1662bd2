"""`heal up`, `heal down`: server, pool, worker and deployments on one machine."""

import errno
import importlib.util
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from conf.errors import ConfigError
from conf.service import Site
from conf.yaml_text import RepeatedKeyError, load_yaml
from flows.operations_api import Api
from flows.service import Say, Service
from tasks.errors import InputError

POOL = "heal"
SERVER, WORKER = "server", "worker"
START_S, STOP_S = 300.0, 60.0  # a machine may have much else to do
DEPLOYMENTS = "prefect.yaml"


class ServiceFailed(InputError):  # noqa: N818 — it is the service that failed
    """A service did not come up; its last words are told."""


@dataclass(frozen=True)
class Deployment:
    """What prefect.yaml deploys, as `flow/name`."""

    flow: str
    name: str

    @property
    def text(self) -> str:
        """As Prefect names it: FLOW/NAME."""
        return f"{self.flow}/{self.name}"


def start(site: Site, say: Say) -> None:
    """Starts what is not running yet, and deploys; twice is as good as once.

    InputError if the port is another program's, ServiceFailed with a service's last words.
    """
    path = deployments_file(site)
    wanted = deployments_in(path)
    _make_books(site)
    server, worker = Service(site, SERVER), Service(site, WORKER)
    if server.is_running:
        _same_place(server, site)
        say(f"server: was running at {site.url}")
    else:
        refuse_taken_port(site)
        worker.stop(STOP_S, say)  # it would wait for runs whose server forgot them
        say(f"server: starting at {site.url}")
        server.start(server_command(site), about=site.url)
    api = Api(site.url)
    _wait(server, api.is_healthy, "answer", say)
    was_running = worker.is_running
    if not was_running:
        for name in api.end_left_runs(POOL):
            say(f"{name}: its process is gone; run it again, it goes on from there")
        worker.start(worker_command())
    # The worker makes the pool where there is none: no command of its own, and the seconds
    # it takes to start are those of the deployments.
    _wait(worker, lambda: api.has_pool(POOL), "make its pool", say)
    say(f"pool: {POOL}")
    _deploy(server, api, path, wanted, say)
    _wait(worker, lambda: api.online_workers(POOL) > 0, "report to its pool", say)
    say(f"worker: {'was running' if was_running else 'started'}")


def _make_books(site: Site) -> None:
    try:
        site.books.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{site.books}: can't be made ({error.strerror}), and what runs here is "
            "written down there; name another folder with --home or HEAL_HOME"
        ) from error


def stop(site: Site, say: Say) -> None:
    """Stops the worker, then the server; what a run finished is kept.

    A worker that outlives its server needs a second signal: so it goes first, and is gone.
    """
    for name in (WORKER, SERVER):
        service = Service(site, name)
        if not service.is_running:
            say(f"{name}: was not running")
            continue
        say(f"{name}: stopping")
        service.stop(STOP_S, say)
        say(f"{name}: stopped")


def deployments_file(site: Site) -> Path:
    """`prefect.yaml` of the home, else the one that came with the program."""
    own = site.home / DEPLOYMENTS
    if own.is_file():
        return own
    spec = importlib.util.find_spec("flows")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    shipped = Path(spec.submodule_search_locations[0]).parent / DEPLOYMENTS
    if shipped.is_file():
        return shipped
    raise InputError(
        f"{own}: there is none; copy prefect.yaml of the repository there, it says what "
        "is deployed"
    )


def deployments_in(path: Path) -> list[Deployment]:
    """What a `prefect.yaml` deploys; the flow is what its entrypoint names."""
    try:
        raw = load_yaml(path.read_text(encoding="utf-8"))
        return [
            Deployment(one["entrypoint"].rpartition(":")[2], str(one["name"]))
            for one in raw["deployments"]
        ]
    except RepeatedKeyError as error:
        raise ConfigError(f"{path}: {error}") from error
    except (
        OSError,
        ValueError,
        yaml.YAMLError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        raise ConfigError(
            f"{path}: is no list of deployments with name and entrypoint: {error}"
        ) from error


def refuse_taken_port(site: Site) -> None:
    """InputError if something else answers where the server is to be."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((site.host, site.port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise InputError(
                    f"--host {site.host} --port {site.port}: nothing can be served there "
                    f"({error.strerror}); give an address of this machine and another port"
                ) from error
            raise InputError(
                f"{site.host}:{site.port}: is taken ({error.strerror}), and not by this "
                "home's server; choose another with --port"
            ) from error


def as_running(site: Site) -> Site:
    """The site with its server's address, if one is running."""
    server = Service(site, SERVER)
    at = urlsplit(server.about) if server.is_running else None
    if at is None or at.hostname is None or at.port is None:
        return site
    return replace(site, host=at.hostname, port=at.port)


def _same_place(server: Service, site: Site) -> None:
    if server.about not in ("", site.url):
        raise InputError(
            f"{site.home}: its server runs at {server.about}, not {site.url}; heal down "
            "first, or leave --port out"
        )


def _deploy(
    server: Service, api: Api, path: Path, wanted: Sequence[Deployment], say: Say
) -> None:
    say(f"deploying what {path} lists, some seconds")
    said = server.ask("deploy", "--all", "--no-prompt", "--prefect-file", str(path))
    found = api.deployments()
    # `prefect deploy` ends with 0 even when a flow can't be imported.
    missing = [one.text for one in wanted if one.text not in found]
    if missing:
        raise ServiceFailed(f"{path}: {', '.join(missing)} could not be deployed:", said)
    say(f"deployments: {', '.join(one.text for one in wanted)}")


def _wait(service: Service, is_there: Callable[[], bool], does: str, say: Say) -> None:
    if not service.wait(is_there, START_S, does, say):
        how = f"does not {does}" if service.is_running else "ended"
        raise ServiceFailed(f"{service.name} {how}; {service.log} ends:", service.tail())


def server_command(site: Site) -> list[str]:
    """What of `prefect` is the server."""
    return ["server", "start", "--host", site.host, "--port", str(site.port)]


def worker_command() -> list[str]:
    """What of `prefect` is the worker."""
    return ["worker", "start", "--pool", POOL, "--type", "process"]
