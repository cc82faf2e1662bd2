"""Rows 12, 14 and 15: a cached rerun, a stage's overhead, the first line of `heal run`.

`python -m bench.cached_run [--quick]`. Wall clock, since that is what a user waits for; the
processor time stands beside it and moves less on a busy machine. The demo is made once in
`.heal-bench/store` (about 4 minutes), and so is a heal of its folded model, which the runs
with and without a Prefect server repeat.
"""

import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.stage_overhead import overheads
from bench.turns import FOLDER, HOME, Json, environment, main, rounds_of, target

STORE, CONFIG = FOLDER / "store", FOLDER / "heal.yaml"
HEAL = [str(Path(sys.executable).parent / "heal")]
IN_A_FLOW = (
    "import asyncio; from flows.deployed import heal; "
    f"asyncio.run(heal({str(CONFIG)!r}, ['runtime.store={STORE}']))"
)


def measure(*, quick: bool = False) -> Json:
    """Seconds of cached runs and of the first line, milliseconds of a stage."""
    demo = [*HEAL, "demo", "--store", str(STORE)]
    heal = [*HEAL, "run", str(CONFIG), "--store", str(STORE)]
    _run(demo)
    _write_config()
    _run(heal)
    rounds = rounds_of(quick=quick)
    alone = [_run(demo) for _ in range(rounds)]
    lines = [_first_line(heal) for _ in range(rounds)]
    with _server() as api:
        flow = [sys.executable, "-c", IN_A_FLOW]
        _run(flow, PREFECT_API_URL=api)
        served = [_run(flow, PREFECT_API_URL=api) for _ in range(rounds)]
    demo_s, served_s = _median(alone, "wall s"), _median(served, "wall s")
    overhead = overheads(FOLDER / "overhead")
    first_s = statistics.median(lines)
    runs = {"s, without a server": demo_s, "s, with one": served_s}
    return {
        "rows": {
            "12": target(runs, "≤ 1.8; ≤ 3", met=demo_s <= 1.8 and served_s <= 3),
            "14": target(overhead, "≤ 10 ms", met=max(overhead.values()) <= 10),
            "15": target(first_s, "≤ 1 s", met=first_s <= 1),
        },
        "details": {
            "rounds": rounds,
            "demo": {name: _median(alone, name) for name in alone[0]},
            "heal with a server": {name: _median(served, name) for name in served[0]},
        },
    }


def _run(command: Sequence[str], **more: str) -> Json:
    """Wall and processor seconds of a command, from start to exit."""
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(
        command, cwd=HOME, env=environment() | more, capture_output=True, check=False
    )
    wall, after = time.perf_counter() - start, os.times()
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.decode()[-2000:]}")
    cpu = after.children_user - before.children_user
    cpu += after.children_system - before.children_system
    return {"wall s": wall, "processor s": cpu}


def _first_line(command: Sequence[str]) -> float:
    """Wall seconds until a command says anything."""
    start = time.perf_counter()
    with subprocess.Popen(
        command,
        cwd=HOME,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()
        took = time.perf_counter() - start
        process.communicate()
    return took


def _median(runs: Sequence[Json], name: str) -> float:
    return statistics.median(float(run[name]) for run in runs)


def _write_config() -> None:
    """A heal of the demo's folded model, short: only its reruns are timed."""
    students = (STORE / "fold_model").glob("*/model.cmf")
    student = max(students, key=lambda path: path.stat().st_mtime_ns)
    CONFIG.write_text(
        f"student: {student}\n"
        "data:\n"
        "  - {path: 'python:stdlib', tokens: 131072, name: code}\n"
        "  - {path: 'python:topics', tokens: 131072, name: prose}\n"
        "pack: {window: 128}\n"
        "trunk: {shard_windows: 128}\n"
        "train: {steps: 8, batch: 8, eval_every: 8, eval_windows: 8}\n"
    )


@contextmanager
def _server() -> Iterator[str]:
    """A Prefect server of its own, on a free port, with its files in the bench's folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/api"
    home = {"PREFECT_HOME": str(FOLDER / "prefect"), "DO_NOT_TRACK": "1"}
    command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)]
    with (FOLDER / "server.log").open("wb") as log:
        server = subprocess.Popen(
            command, env=environment() | home, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        _wait_for(f"{url}/health")
        yield url
    finally:
        server.terminate()
        server.wait(30)


def _wait_for(url: str, timeout_s: float = 120.0) -> None:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise SystemExit(f"{url}: no answer in {timeout_s:.0f} s; see .heal-bench/server.log")


if __name__ == "__main__":
    main(measure)
