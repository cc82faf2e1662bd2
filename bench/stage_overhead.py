"""Row 14's part: what a stage costs beside its own work, made and found again.

`python -m bench.stage_overhead [--quick]`. A stage that writes one file of eight bytes and
refers to the one before it, 40 in a row, without a server. Wall clock, median.
"""

import shutil
import statistics
import time
from collections.abc import Mapping
from pathlib import Path

from bench.turns import FOLDER, Json, main, target
from conf.base import Settings
from store.artifact import Artifact
from store.store import Store
from tasks.stage import Runtime, stage

STAGES, WARM = 40, 5


class Numbered(Settings):
    """Tells one call from another."""

    number: int


@stage("bench_nothing", version=1)
def nothing(
    out: Path, settings: Numbered, runtime: Runtime, *, before: Artifact | None
) -> Mapping[str, object]:
    """Eight bytes."""
    (out / "file").write_bytes(settings.number.to_bytes(8, "little"))
    return {"number": settings.number}


def overheads(folder: Path) -> dict[str, float]:
    """Milliseconds a stage, when it is made and when it is found by another process."""
    shutil.rmtree(folder, ignore_errors=True)
    made = _through(folder)
    found = _through(folder)
    return {"ms, made": made, "ms, found": found}


def _through(folder: Path) -> float:
    runtime = Runtime(store=Store(folder))
    before, took = None, []
    for number in range(STAGES):
        start = time.perf_counter()
        before = nothing(Numbered(number=number), runtime, before=before)
        took.append(time.perf_counter() - start)
    return statistics.median(took[WARM:]) * 1e3


def measure(*, quick: bool = False) -> Json:
    """The overheads alone."""
    value = overheads(FOLDER / "overhead")
    return {"rows": {"14": target(value, "≤ 10 ms", met=max(value.values()) <= 10)}}


if __name__ == "__main__":
    main(measure)
