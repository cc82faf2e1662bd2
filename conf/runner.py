"""Who computes what can be computed apart: this process, or workers of dask or ray."""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Literal, TypeAlias

from conf.errors import ConfigError

Engine: TypeAlias = Literal["dask", "ray"]
RunnerKind: TypeAlias = Literal["threads"] | Engine
PACKAGES = {"dask": "distributed", "ray": "ray"}
SCHEMES = ("tcp://", "tls://")
# What decides bytes and what moves between processes: alike wherever one run computes.
SAME_EVERYWHERE = ("mtp-heal", "torch", "transformers", "numpy", "zarr")


@dataclass(frozen=True)
class Runner:
    """`threads`: all in this process. Else workers: of `cluster`, or started here.

    `threads` each computes on; None: as many as are idle where it runs.
    """

    kind: RunnerKind = "threads"
    workers: int | None = None
    cluster: str | None = None
    threads: int | None = None

    @property
    def is_here(self) -> bool:
        """Whether this process does all of it."""
        return self.kind == "threads"

    def is_worth(self, jobs: int) -> bool:
        """Whether workers are asked: a cluster always, one started here for two or more."""
        return not self.is_here and jobs > (0 if self.cluster else 1)


def fault_of(kind: RunnerKind, workers: int | None, cluster: str | None) -> str | None:
    """What is wrong with these three settings together, and what to do."""
    if kind == "threads":
        if workers is not None or cluster is not None:
            return (
                "workers and cluster are for runner: dask or ray; set it, or leave both out"
            )
        return None
    if cluster is None:
        return None
    if cluster == "auto" if kind == "ray" else cluster.startswith(SCHEMES):
        return None
    ways = {
        "dask": "tcp://HOST:8786 or tls://HOST:8786",
        "ray": "auto, on a machine of the cluster",
    }
    return f"cluster is {cluster!r}; for runner: {kind} write {ways[kind]}"


def refuse_missing_engine(kind: RunnerKind) -> None:
    """ConfigError, with the line for pip, where the runner's package is not installed."""
    if kind != "threads" and find_spec(PACKAGES[kind]) is None:
        raise ConfigError(
            f"runtime.runner is {kind}: the package {PACKAGES[kind]} is not installed; "
            f"pip install 'mtp-heal[{kind}]', here and on every worker"
        )


def versions_here() -> dict[str, str]:
    """The installed versions of what has to be alike wherever one run computes."""
    return {name: _version(name) for name in SAME_EVERYWHERE}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
