"""Racers in processes of their own that take turns: one round each, on one thread.

A racer is built once, warmed up, and then does a round whenever it is told to; processor
time is what counts, so that what else runs on the machine disturbs least. Ours keeps freed
memory as `heal` does from its first line; a baseline has the allocator a user has.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conf.machine import keep_freed_memory, limit_threads

HOME = Path(__file__).parent.parent
FOLDER = HOME / ".heal-bench"
ROUNDS, QUICK_ROUNDS = 7, 2
OURS = "ours"
ALLOCATOR = (
    "ours: mallopt as heal sets it; baselines: glibc's default, in their own process"
)

Json = dict[str, Any]  # what a script reports
Round = Callable[[int], Json]  # does round i and says what is to be known of it


def rounds_of(*, quick: bool) -> int:
    """How many rounds a measurement takes."""
    return QUICK_ROUNDS if quick else ROUNDS


def seconds(work: Callable[[], object]) -> float:
    """Processor time of a call, all threads of this process."""
    start = time.process_time()
    work()
    return time.process_time() - start


def race(module: str, racers: Sequence[str], rounds: int) -> dict[str, list[Json]]:
    """What each racer of `python -m MODULE --racer NAME` said, round by round.

    A racer starts when the one before is built and warm: they keep files for each other.
    """
    running = {}
    try:
        for name in racers:
            running[name] = _started(module, name)
            _hear(running[name])
        said: dict[str, list[Json]] = {name: [] for name in racers}
        for index in range(rounds):
            for name, process in running.items():
                assert process.stdin is not None
                process.stdin.write(f"{index}\n")
                process.stdin.flush()
                said[name].append(_hear(process))
        return said
    finally:
        for process in running.values():
            process.kill()
            process.communicate()


def serve(name: str, build: Callable[[], Round]) -> None:
    """Be a racer: build, do round 0 to warm up, then a round for each line of stdin."""
    limit_threads(1)
    if name.startswith(OURS):
        keep_freed_memory()
    play = build()
    play(0)
    _say({"ready": name})
    for line in sys.stdin:
        _say(play(int(line)))


def ratio(baseline: Sequence[Json], ours: Sequence[Json]) -> float:
    """How many times quicker ours is: the median of the rounds' own ratios."""
    pairs = zip(baseline, ours, strict=True)
    return statistics.median(
        float(slow["seconds"]) / float(fast["seconds"]) for slow, fast in pairs
    )


def median(rounds: Sequence[Json], name: str = "seconds") -> float:
    """The median over the rounds."""
    return statistics.median(float(one[name]) for one in rounds)


def target(value: object, wanted: str, *, met: bool) -> Json:
    """A row of docs/benchmarks.md: what was measured, what is due, whether it is met."""
    return {"value": value, "target": wanted, "met": met}


def main(
    measure: Callable[..., Json], racers: Mapping[str, Callable[[], Round]] | None = None
) -> None:
    """The command line of a script: `[--quick]` prints its report as JSON."""
    options = sys.argv[1:]
    if options[:1] == ["--racer"]:
        assert racers is not None, "only a script with racers starts itself again"
        serve(options[1], racers[options[1]])
    else:
        print(json.dumps(measure(quick="--quick" in options), indent=1))  # noqa: T201


def environment() -> dict[str, str]:
    """One thread for every library, no network, Python's usual cache of compiled files."""
    threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    own = {
        **dict.fromkeys(threads, "1"),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    dropped = {"PYTHONDONTWRITEBYTECODE", "HEAL_STORE", "GLIBC_TUNABLES"}
    return {k: v for k, v in os.environ.items() if k not in dropped} | own


def _started(module: str, name: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", module, "--racer", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=HOME,
        env=environment(),
    )


def _hear(process: "subprocess.Popen[str]") -> Json:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            said: Json = json.loads(line)
            return said
    raise SystemExit(f"{process.args!r}: ended before its round; its error is above")


def _say(value: Json) -> None:
    print(json.dumps(value), flush=True)  # noqa: T201
