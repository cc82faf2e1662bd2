"""Runs the experiments of conf/experiments, and writes what they showed as docs pages.

    python -m bench.experiments [NAME …] [--demo demo|smollm2] [--store DIR] [--workers 2]

Two heals run at once, each on one thread. All is cached: a cut run goes on, and what is
done is only read. `--read` runs nothing and writes the page from what is there.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.experiment_cells import Bench, Job, find_experiments, jobs_of, load_experiment
from bench.experiment_page import Answer, answer, write_page
from bench.turns import FOLDER, HOME, environment
from conf.experiment import Experiment
from conf.machine import keep_freed_memory, limit_threads

Experiments = dict[str, Experiment]


def main() -> None:
    """The command line."""
    options = _options()
    names = options.names or list(find_experiments())
    experiments = {name: load_experiment(name) for name in names}
    jobs = [
        job
        for name, experiment in experiments.items()
        for job in jobs_of(name, experiment)
        if options.demo in (None, job.place.demo)
    ]
    if options.part is not None:
        limit_threads(1)
        keep_freed_memory()
        work(Bench(options.store), experiments, jobs[options.part :: options.workers])
        return
    if not options.read:
        run_parts(options.workers, options.store, sys.argv[1:])
    write_page(answers(Bench(options.store), experiments, jobs))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *find_experiments()])
    parser.add_argument("--demo", choices=["demo", "smollm2"])
    parser.add_argument("--store", type=Path, default=FOLDER / "experiments")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--read", action="store_true")
    parser.add_argument("--part", type=int)
    return parser.parse_args()


def run_parts(workers: int, store: Path, given: Sequence[str]) -> None:
    """Starts the workers, each with its share of the heals, and waits for all of them."""
    store.mkdir(parents=True, exist_ok=True)
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.experiments", *given, "--part", str(part)],
            cwd=HOME,
            env=environment(),
        )
        for part in range(workers)
    ]
    failed = [process.args for process in running if process.wait() != 0]
    if failed:
        raise SystemExit(f"{len(failed)} of {workers} workers failed; see above")


def work(bench: Bench, experiments: Experiments, jobs: Sequence[Job]) -> None:
    """Heals and measures these jobs, those of one demonstration after another."""
    for job in sorted(jobs, key=lambda job: job.place.demo):
        bench.heal(job, experiments[job.experiment])


def answers(bench: Bench, experiments: Experiments, jobs: Sequence[Job]) -> list[Answer]:
    """What the heals showed, an answer for each experiment, place and measuring ground."""
    found = []
    for name, experiment in experiments.items():
        for place in experiment.places:
            mine = [j for j in jobs if (j.experiment, j.place) == (name, place)]
            if mine:
                results = {(j.cell, j.seed): bench.heal(j, experiment) for j in mine}
                stale = bench.stale(mine[0], experiment)
                found += answer(name, experiment, place, results, stale)
    return found


if __name__ == "__main__":
    os.environ.update(environment())
    main()
