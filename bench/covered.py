"""How much of each room the tests ran: the last part of `make coverage`.

Reads `.coverage`, as pytest-cov left it. Lines and branches are held apart: in coverage's
one figure many lines hide a few branches.
"""

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from coverage import Coverage

ROOMS = ("nets", "cmfio", "store", "tasks")
LEAST = 90.0  # per cent


@dataclass(frozen=True)
class Covered:
    """Of one room: how much the tests ran of its lines and of its branches, in per cent."""

    room: str
    lines: float
    branches: float

    @property
    def is_enough(self) -> bool:
        """Whether neither is below `LEAST`."""
        return min(self.lines, self.branches) >= LEAST


def covered(data: Path, room: str) -> Covered:
    """What a data file of coverage says of a room; CoverageException if there is none."""
    measured = Coverage(data_file=str(data))
    measured.load()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        measured.json_report(include=[f"{room}/*"], outfile=file.name)
        totals = json.load(file)["totals"]
    return Covered(
        room,
        100 * totals["covered_lines"] / totals["num_statements"],
        100 * totals["covered_branches"] / totals["num_branches"],
    )


def main(data: Path = Path(".coverage")) -> int:
    """Prints a line a room; 1 if one has too little."""
    found = [covered(data, room) for room in ROOMS]
    for one in found:
        short = "" if one.is_enough else f"  below {LEAST:.0f} %"
        line = f"{one.room:6} lines {one.lines:5.1f} %  branches {one.branches:5.1f} %"
        sys.stdout.write(f"{line}{short}\n")
    return 0 if all(one.is_enough for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
