"""The few questions we put to a Prefect server, over plain HTTP: no client, no import."""

import json
import time
import urllib.error
import urllib.request
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tasks.errors import InputError

TIMEOUT_S = 10.0
BUSY, BUSY_S, PAUSE_S = 503, 30.0, 0.5
EVENT = "compress.completed"


class Api:
    """A server at `url`, as in `http://127.0.0.1:4200`."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/").removesuffix("/api")

    def is_healthy(self) -> bool:
        """Whether it answers."""
        try:
            return self._call("health", None) is True
        except (OSError, ValueError):
            return False

    def has_pool(self, name: str) -> bool:
        """Whether there is a work pool of that name."""
        try:
            self._call(f"work_pools/{name}", None)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return False
        return True

    def online_workers(self, pool: str) -> int:
        """How many workers of a pool reported lately."""
        workers = self._call(f"work_pools/{pool}/workers/filter", {})
        return sum(worker.get("status") == "ONLINE" for worker in workers)

    def deployments(self) -> list[str]:
        """`flow/name` of every deployment."""
        flows = {one["id"]: one["name"] for one in self._call("flows/filter", {})}
        found = self._call("deployments/filter", {})
        return sorted(f"{flows.get(one['flow_id'], '?')}/{one['name']}" for one in found)

    def runs(self, *states: str) -> list[dict[str, Any]]:
        """Flow runs in any of some states, as `RUNNING`, as the server tells them."""
        wanted = {"flow_runs": {"state": {"type": {"any_": list(states)}}}}
        found: list[dict[str, Any]] = self._call("flow_runs/filter", wanted)
        return found

    def end_left_runs(self, pool: str) -> list[str]:
        """Ends what the server takes to be under way in a pool that has no process left.

        The names of those runs. It also frees their deployments' places: a server that was
        killed forgets who held them, and later runs would wait for ever.
        """
        left = [
            run
            for run in self.runs("RUNNING", "PENDING", "CANCELLING")
            if run["work_pool_name"] == pool
        ]
        crashed = {"type": "CRASHED", "message": "its process ended without a word"}
        for run in left:
            self._call(
                f"flow_runs/{run['id']}/set_state", {"state": crashed, "force": True}
            )
        for one in self._call("deployments/filter", {}):
            limit = one["global_concurrency_limit"]
            if one["work_pool_name"] == pool and limit is not None:
                free = {"active_slots": 0}
                self._call(f"v2/concurrency_limits/{limit['id']}", free, "PATCH")
        return [str(run["name"]) for run in left]

    def announce(self, model: Path) -> None:
        """Send `compress.completed` for a model; InputError if no server takes it."""
        event = {
            "id": str(uuid.uuid4()),
            "occurred": datetime.now(UTC).isoformat(),
            "event": EVENT,
            "resource": {"prefect.resource.id": f"compress.{model.stem}"},
            "related": [],
            "payload": {"model": str(model)},
        }
        try:
            self._call("events", [event])
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.url}: no server took the event ({error}); start one with heal up, "
                "or name it with --url"
            ) from error

    def _call(self, path: str, body: object, method: str | None = None) -> Any:
        """Whatever JSON the server answers; None for nothing.

        Asked again while it says 503: another process holds its database for a moment.
        """
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                return self._ask(path, body, method)
            except urllib.error.HTTPError as error:
                if error.code != BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_S)

    def _ask(self, path: str, body: object, method: str | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        at = f"{self.url}/api/{path}"
        request = urllib.request.Request(at, data, headers, method=method)
        # Never through a proxy that the environment names: the server is on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            text = answer.read()
        return json.loads(text) if text else None
