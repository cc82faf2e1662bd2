"""The processes `heal up` starts: where they live, and what they are told."""

import os
from dataclasses import dataclass
from pathlib import Path

from conf.machine import environment_store

LOOPBACK = "127.0.0.1"
PORT = 4200
LEASES = "prefect.server.concurrency.lease_storage.filesystem"
QUIET = {  # nothing calls out: no usage figures, no hub, no page that asks another host
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


@dataclass(frozen=True)
class Site:
    """A home: its models, data, configurations, store, and what the server writes."""

    home: Path
    store: Path
    host: str = LOOPBACK
    port: int = PORT
    database: str | None = None

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        return f"http://{self.host}:{self.port}"

    @property
    def books(self) -> Path:
        """Process ids and logs of what runs here."""
        return self.home / ".services"

    def environment(self) -> dict[str, str]:
        """This process's environment with everything the services are told."""
        return os.environ | self.told()

    def told(self) -> dict[str, str]:
        """What the services are told, by variable."""
        told = {
            **QUIET,
            "HEAL_HOME": str(self.home),
            "HEAL_STORE": str(self.store),
            "PREFECT_HOME": str(self.home / ".prefect"),
            "PREFECT_API_URL": f"{self.url}/api",
            "PREFECT_UI_URL": self.url,
            "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
            # Who holds a deployment's only place is on disk, or a killed server forgets it
            # and that place is never free again.
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": LEASES,
            "PREFECT_WORKER_QUERY_SECONDS": "2",
            "PREFECT_CLI_COLORS": "false",
            "PYTHONUNBUFFERED": "1",
        }
        if self.database is not None:
            told["PREFECT_API_DATABASE_CONNECTION_URL"] = self.database
        return told


def environment_home() -> Path:
    """HEAL_HOME, else the current folder, absolute."""
    return Path(os.environ.get("HEAL_HOME") or ".").absolute()


def site_of(home: Path | None, store: Path | None) -> Site:
    """The site at `--home`, else HEAL_HOME, else here; its store, else HEAL_STORE."""
    where = (home or environment_home()).absolute()
    kept = Path(store or environment_store() or where / ".heal")
    is_bucket = kept.parts[:1] == ("s3:",)  # no folder: it means the same anywhere
    return Site(where, kept if is_bucket else kept.absolute())


def environment_api() -> str | None:
    """PREFECT_API_URL, if set and not empty."""
    return os.environ.get("PREFECT_API_URL") or None
