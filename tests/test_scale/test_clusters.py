"""Real clusters of two workers on this machine: the same artifacts, and kills survived."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from prefect import flow

from conf.runner import Engine
from store.manifest import Manifest, Origin
from tasks.errors import RunnerError
from tests.test_scale.pass_program import (
    SHARDS,
    TOKENS,
    Watched,
    make_ground,
    run_pass,
    runner,
    states,
)

pytestmark = [
    pytest.mark.scale,
    pytest.mark.filterwarnings("ignore"),  # what dask and ray leave behind is theirs
]
BIN = Path(sys.executable).parent
ENGINES: list[Engine] = ["dask", "ray"]
each_engine = pytest.mark.parametrize("kind", ENGINES)
# In the worker processes' command lines; with setproctitle those of dask have a name.
WORKER = {"dask": r"spawn_main|^dask worker \[", "ray": r"^ray::Hand"}


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ground(tmp_path_factory.mktemp("ground") / "model")


@pytest.fixture(scope="module")
def here(ground: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a pass without workers."""
    store = tmp_path_factory.mktemp("here")
    run_pass(ground, store, runner("threads"))
    return store


def artifacts(store: Path) -> dict[str, object]:
    """Every file's bytes by stage, key and path; of manifests all but the origin."""
    found: dict[str, object] = {}
    for path in store.glob("trunk_*/*/**/*"):
        name = str(path.relative_to(store))
        if path.is_file() and path.name == "manifest.json":
            manifest = Manifest.model_validate_json(path.read_bytes())
            told = {"files", "notes", *Origin.model_fields}
            found[name] = manifest.model_dump(exclude=told)
        elif path.is_file() and path.name != "record.json":
            found[name] = path.read_bytes()
    return found


def workers(kind: Engine) -> list[int]:
    """The processes below this one that carry out orders."""
    parents, lines = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after = (folder / "stat").read_text().rpartition(")")[2].split()
            lines[int(folder.name)] = (
                (folder / "cmdline").read_bytes().decode("utf-8", "replace")
            )
        except OSError:
            continue  # it has ended meanwhile
        parents[int(folder.name)] = int(after[1])

    def is_below(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and is_below(parents[pid]))

    return sorted(p for p, line in lines.items() if titled(kind, line) and is_below(p))


def titled(kind: Engine, line: str) -> bool:
    return re.search(WORKER[kind], line) is not None


class Seeing(Watched):
    """Sees the workers when a quarter of the pass is done."""

    def __init__(self, kind: Engine) -> None:
        super().__init__(at=TOKENS // 4)
        self.kind = kind
        self.seen: list[int] = []

    def reached(self) -> None:
        self.seen = workers(self.kind)


class Killing(Watched):
    """Kills a worker at its shard, once a quarter of the pass is done."""

    def __init__(self, kind: Engine, store: Path) -> None:
        super().__init__()
        self.kind = kind
        self.locks = store / "locks" / "trunk_shard"
        self.killed: int | None = None

    def advance(self, count: int = 1, **values: float) -> None:
        super().advance(count, **values)
        if self.done >= TOKENS // 4 and self.killed is None:
            pids = workers(self.kind)
            at_work = (pid for pid in pids if stopped_at_work(pid, self.locks))
            self.killed = next(at_work, None)  # an idle one would not be missed
            if self.killed is not None:
                os.kill(self.killed, signal.SIGKILL)


def stopped_at_work(pid: int, locks: Path) -> bool:
    """Stops a process; tells whether it makes a shard. One that does not goes on."""
    os.kill(pid, signal.SIGSTOP)
    while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "T":
        time.sleep(0.001)
    if pid in holding(locks):
        return True
    os.kill(pid, signal.SIGCONT)
    return False


def holding(locks: Path) -> set[int]:
    """The processes that hold a flock on a file of that folder."""
    files = {str(lock.stat().st_ino) for lock in locks.iterdir()}
    lines = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return {
        int(words[4])
        for words in lines
        if words[1] == "FLOCK" and words[5].rpartition(":")[2] in files
    }


@each_engine
def test_a_cluster_makes_the_same_artifacts(
    ground: Path, here: Path, tmp_path: Path, kind: Engine
) -> None:
    progress = Seeing(kind)
    rows, runtime = run_pass(ground, tmp_path, runner(kind), progress)
    assert states(runtime) == ["ran"] * SHARDS
    assert artifacts(tmp_path) == artifacts(here)
    assert len(progress.seen) == 2
    assert workers(kind) == []
    again, cached = run_pass(ground, tmp_path, runner(kind))
    assert (again.key, states(cached)) == (rows.key, ["cached"] * SHARDS)


@each_engine
def test_a_killed_workers_shards_are_made_by_another(
    ground: Path, here: Path, tmp_path: Path, kind: Engine
) -> None:
    progress = Killing(kind, tmp_path)
    run_pass(ground, tmp_path, runner(kind), progress)
    gone = rf"its worker \(.*, process {progress.killed}\) is gone; begun again on "
    assert any(re.search(gone, line) for line in progress.said), progress.said
    assert progress.done == TOKENS
    assert artifacts(tmp_path) == artifacts(here)


@each_engine
def test_a_killed_run_resumes_at_the_shard(
    ground: Path, here: Path, tmp_path: Path, kind: Engine
) -> None:
    program = Path(__file__).with_name("pass_program.py")
    command = [sys.executable, str(program), str(ground), str(tmp_path), kind]
    environment = os.environ | {"PYTHONPATH": str(program.parents[2])}
    cut = subprocess.Popen(command, env=environment, start_new_session=True)
    while len([*tmp_path.glob("trunk_shard/*/record.json")]) < 3:
        assert cut.poll() is None, "it ended before it could be killed"
        time.sleep(0.05)
    os.killpg(cut.pid, signal.SIGKILL)
    cut.wait()
    _, runtime = run_pass(ground, tmp_path, runner(kind))
    found = states(runtime).count("cached")
    assert 3 <= found < SHARDS
    assert artifacts(tmp_path) == artifacts(here)


def test_a_flow_run_has_workers_too(
    ground: Path, here: Path, tmp_path: Path, prefect_server: None
) -> None:
    @flow
    async def once() -> list[str]:
        return states(run_pass(ground, tmp_path, runner("dask"))[1])

    assert asyncio.run(once()) == ["ran"] * SHARDS
    assert artifacts(tmp_path) == artifacts(here)


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [BIN / command[0], *command[1:]], stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def scheduler() -> Iterator[str]:
    """A dask scheduler on loopback, by its address."""
    options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    with running("dask", "scheduler", *options) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if (at := re.search(r"Scheduler at:\s+(tcp://\S+)", line)) is not None:
                yield at[1]
                return


def test_a_dask_cluster_that_is_there(ground: Path, here: Path, tmp_path: Path) -> None:
    options = (
        "--nthreads",
        "4",
        "--no-dashboard",
        "--local-directory",
        str(tmp_path / "w"),
    )
    with scheduler() as address, running("dask", "worker", address, *options):
        _, runtime = run_pass(ground, tmp_path / "store", runner("dask", address))
        assert states(runtime) == ["ran"] * SHARDS
    assert artifacts(tmp_path / "store") == artifacts(here)


def test_a_dask_cluster_that_is_away(ground: Path, tmp_path: Path) -> None:
    with scheduler() as address:
        pass  # it has ended
    with pytest.raises(RunnerError, match=rf"no dask scheduler answers at {address}"):
        run_pass(ground, tmp_path, runner("dask", address))


@contextmanager
def ray_head(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """A ray cluster of this machine alone, found by `auto`."""
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        patch.setenv("RAY_TMPDIR", folder)
        options = ("--num-cpus", "2", "--include-dashboard", "false", "--port", "0")
        with running("ray", "start", "--head", "--block", *options) as process:
            while not (Path(folder) / "ray" / "ray_current_cluster").exists():
                assert process.poll() is None, "it has ended"
                time.sleep(0.1)
            yield


def test_a_ray_cluster_that_is_there(
    ground: Path, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ray_head(monkeypatch):
        for name, cluster in (("its", "auto"), ("own", None)):  # nobody joins it unasked
            _, runtime = run_pass(ground, tmp_path / name, runner("ray", cluster))
            assert states(runtime) == ["ran"] * SHARDS
            assert artifacts(tmp_path / name) == artifacts(here)


def test_a_ray_cluster_that_is_away(ground: Path, tmp_path: Path) -> None:
    with pytest.raises(RunnerError, match="no ray cluster answers at auto"):
        run_pass(ground, tmp_path, runner("ray", "auto"))
