"""Where, with what and how long an artifact was made."""

import platform
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from store.manifest import Origin

DISTRIBUTIONS = ("numpy", "prefect", "pyarrow", "torch", "transformers", "zarr")


@dataclass(frozen=True)
class Stopwatch:
    """Started when a stage begins to fill its folder."""

    date: datetime = field(default_factory=lambda: datetime.now(UTC))
    start: float = field(default_factory=time.monotonic)

    def origin(self, machine: str, *, resumed: bool) -> Origin:
        """What the manifest says of a fill that ends now; `machine` is free text."""
        return Origin(
            machine=f"{platform.system()} {platform.machine()}, {machine}",
            versions=_versions(),
            started=self.date.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - self.start, 3),
            resumed=resumed,
        )


_version = cache(version)  # two milliseconds of reading for every stage otherwise


def _versions() -> dict[str, str]:
    """Of Python, of us and of those libraries that this process has loaded."""
    found = {"python": platform.python_version()}
    for name in ("mtp-heal", *(name for name in DISTRIBUTIONS if name in sys.modules)):
        try:
            found[name] = _version(name)
        except PackageNotFoundError:
            continue  # run from a checkout that is not installed
    return found
