"""A home with real services on loopback, started and stopped by the command line."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from conf.service import Site
from tests.small_heal import small_ground

BIN = Path(sys.executable).parent
OUT = "{dir}/{stem}.healed.cmf"
INSPECTOR = "http://127.0.0.1:4299"  # what a link is made of; nothing listens there
TIMEOUT_S = 180.0  # for a machine with much else to do
COMMAND_S = 600.0  # heal up itself gives a service 300 s
LOST = ("Failed", "Crashed")
AT_WORK = "train_draft/*/work/progress.json"
LONG = ["train.steps=100000", "train.patience=null", "train.eval_every=50000"]
Found = TypeVar("Found")


def wait_until(look: Callable[[], Found], what: str, timeout_s: float = TIMEOUT_S) -> Found:
    """What `look` finds as soon as it finds something."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: did not happen"
        time.sleep(0.1)
    return found


@dataclass(frozen=True)
class Lab:
    """A site of a test module, and the commands its users type."""

    site: Site

    @property
    def models(self) -> Path:
        return self.site.home / "models"

    def run(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        given = {"OMP_NUM_THREADS": "1", "HEAL_INSPECTOR": INSPECTOR}
        environment = self.site.environment() | given
        return subprocess.run(
            [str(BIN / program), *arguments],
            cwd=self.site.home,
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    def heal(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return self.run("heal", *arguments)

    def up(self, *more: str) -> None:
        here = ("--home", str(self.site.home), "--port", str(self.site.port))
        done = self.heal("up", *here, *more)
        assert done.returncode == 0, done.stderr

    def down(self) -> None:
        done = self.heal("down", "--home", str(self.site.home))
        assert done.returncode == 0, done.stderr

    def deployed(
        self, *overrides: str, watch: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        """`prefect deployment run heal/small`, watched to its end."""
        given = f"overrides={json.dumps(list(overrides))}"
        return self.run(
            "prefect", "deployment", "run", "heal/small", "-p", given,
            *(["--watch"] if watch else []),
        )  # fmt: skip

    def ask(self, path: str, body: object) -> Any:  # whatever JSON the server answers
        request = urllib.request.Request(
            f"{self.site.url}/api/{path}",
            None if body is None else json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        for _ in range(100):
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                if error.code != 503:  # its database is locked for a moment
                    raise
            time.sleep(0.3)
        raise AssertionError(f"{path}: the server stays too busy to answer")

    def runs(self, flow: str) -> list[dict[str, Any]]:
        """Runs of a flow that were begun, the latest first."""
        return self._runs(flow, "not_any_")

    def planned(self, flow: str) -> list[dict[str, Any]]:
        """Runs of a flow that have yet to begin."""
        return self._runs(flow, "any_")

    def _runs(self, flow: str, scheduled: str) -> list[dict[str, Any]]:
        body = {
            "sort": "START_TIME_DESC",
            "flows": {"name": {"any_": [flow]}},
            "flow_runs": {"state": {"type": {scheduled: ["SCHEDULED"]}}},
        }
        found: list[dict[str, Any]] = self.ask("flow_runs/filter", body)
        return found

    def states(self, run: str) -> dict[str, str]:
        """The states of a run's tasks, by the names they are shown under."""
        body = {"flow_runs": {"id": {"any_": [run]}}}
        return {
            one["name"].rpartition("-")[0]: one["state_name"]
            for one in self.ask("task_runs/filter", body)
        }

    def artifacts(self, run: str) -> dict[str, Any]:
        """What a run shows, by key."""
        body = {"artifacts": {"flow_run_id": {"any_": [run]}}}
        return {one["key"]: one["data"] for one in self.ask("artifacts/filter", body)}

    def records(self) -> set[Path]:
        """Every finished artifact."""
        return set(self.site.store.glob("*/*/record.json"))

    def pid(self, service: str) -> int:
        """A service's process."""
        said = json.loads((self.site.books / f"{service}.json").read_text())
        return int(said["pid"])

    def forget_training(self) -> None:
        """So that whoever waits for a training waits for the next run's."""
        for path in self.site.store.glob(AT_WORK):
            path.unlink()

    def scheduled(self, *overrides: str, deployment: str = "heal/small") -> str:
        """A new run of a deployment, as its page's button would make one."""
        made = self.ask(f"deployments/name/{deployment}", None)
        body = {
            "parameters": {"overrides": list(overrides)},
            "state": {"type": "SCHEDULED"},
        }
        return str(self.ask(f"deployments/{made['id']}/create_flow_run", body)["id"])

    def begin(self, *overrides: str) -> str:
        """A run in the midst of its training."""
        self.forget_training()
        run = self.scheduled(*overrides)

        def look() -> bool:
            assert self.state_of(run) not in LOST, self.log("worker")
            return bool(list(self.site.store.glob(AT_WORK)))

        wait_until(look, "training")
        return run

    def log(self, service: str) -> str:
        """The end of what a service said."""
        return (self.site.books / f"{service}.log").read_text()[-4000:]

    def state_of(self, run: str) -> str:
        """What the server takes a run to be, as `Completed`."""
        (found,) = self.ask("flow_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return str(found["state_name"])

    def ended(self, run: str, timeout_s: float = TIMEOUT_S) -> str:
        """The state a run ends in."""
        final = {"Completed", *LOST}
        return wait_until(lambda: final & {self.state_of(run)}, "its end", timeout_s).pop()

    def completes(self, *overrides: str) -> None:
        """A run that is watched to its good end."""
        done = self.deployed(*overrides)
        assert done.returncode == 0, done.stdout + done.stderr

    def training(self) -> None:
        """Waits for a training that has begun; the long one, which doesn't end."""

        def look() -> bool:
            for path in self.site.store.glob(AT_WORK):
                said = json.loads(path.read_text())
                if said["total"] == 100000 and said["done"] > 0:
                    return True
            return False

        wait_until(look, "training")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


def make_lab(root: Path) -> Lab:
    """A home with a tiny model, a configuration and its deployments; nothing started."""
    ground = small_ground(root)
    (root / "models").mkdir()
    ground.student.rename(root / "models" / "a.cmf")
    raw = ground.config(student="models/a.cmf", trunk={"shard_windows": 32})
    (root / "small.yaml").write_text(yaml.safe_dump(raw))
    watch = {
        "models": "models/*.cmf",
        "conf": "small.yaml",
        "out": "{dir}/{stem}.healed.cmf",
    }
    (root / "night.yaml").write_text(yaml.safe_dump({"watch": [watch]}))
    (root / "prefect.yaml").write_text(yaml.safe_dump(_deployments()))
    return Lab(Site(root, root / ".heal", port=free_port()))


def _deployments() -> dict[str, Any]:
    shipped = yaml.safe_load((Path(__file__).parents[2] / "prefect.yaml").read_text())
    nightly = next(one for one in shipped["deployments"] if one["name"] == "nightly")
    heal = next(one for one in shipped["deployments"] if one["name"] == "qwen14b")
    own = {
        **heal, "name": "small", "parameters": {"conf": "small.yaml", "overrides": []}
    }  # fmt: skip
    wide = {**own, "name": "wide", "concurrency_limit": None}
    night = {**nightly, "parameters": {"conf": "night.yaml"}}
    return {**shipped, "deployments": [own, wide, night]}


def processes_of(root: Path) -> list[int]:
    """Processes whose working folder lies in `root`, ended ones left out."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            where = (entry / "cwd").readlink()
        except OSError:
            continue
        if entry.name.isdigit() and where.is_relative_to(root):
            found.append(int(entry.name))
    return found
