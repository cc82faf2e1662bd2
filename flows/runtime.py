"""Where a run computes and keeps its artifacts: from settings, options, environment."""

from dataclasses import replace
from pathlib import Path

from conf.cards import resolve_cards
from conf.machine import (
    compute_threads,
    environment_store,
    host_threads,
    keep_prefect_in,
    limit_threads,
    resolve_device,
    workers_here,
)
from conf.runner import Runner, refuse_missing_engine
from conf.schema import RuntimeConfig
from store.leases import LeaseTimes
from store.opened import bucket_folder, is_url, open_store
from store.place import refuse_no_folder, refuse_unmakeable
from tasks.interrupt import SIGNALS
from tasks.progress import Progress
from tasks.slots import Slots
from tasks.stage import Runtime
from tasks.told_progress import Tell, ToldProgress

DEFAULT_STORE = "./.heal"
DEFAULT_SCRATCH = "./.heal-s3"


def store_root(option: Path | None, config: RuntimeConfig) -> Path:
    """`--store`, else HEAL_STORE, else runtime.store, else ./.heal.

    Of a bucket it is the folder that stands for it on this machine. NotAStore if it, or a
    folder it would lie in, is a file, and if it was named and can't be made.
    """
    return _folder_of(option or environment_store() or config.store, config)


def _folder_of(named: str | Path | None, config: RuntimeConfig) -> Path:
    if not named:  # who only looks may do so from a folder that takes none
        refuse_no_folder(Path(DEFAULT_STORE))
        return Path(DEFAULT_STORE)
    if is_url(str(named)):
        scratch = Path(config.scratch or DEFAULT_SCRATCH)
        refuse_unmakeable(scratch)
        return bucket_folder(str(named), scratch)
    refuse_unmakeable(Path(named))
    return Path(named)


def _leases(config: RuntimeConfig) -> LeaseTimes | None:
    return LeaseTimes() if config.locks == "lease" else None


def asked_store(option: Path | None) -> Path:
    """The store of a command without a configuration, absolute."""
    return store_root(option, RuntimeConfig()).absolute()


def library_runtime(config: RuntimeConfig, store: Path | None, tell: Tell) -> Runtime:
    """A runtime that leaves its process as it is: no environment, signals or threads.

    It computes on the threads that the host has set; `threads` of the configuration is for
    commands.
    """
    root = _folder_of(store or config.store, config)
    return _runtime(config, root, host_threads(), ToldProgress(tell))


def runner_of(config: RuntimeConfig, threads: int) -> Runner:
    """Who makes shards and outputs; workers started here share this run's `threads`.

    ConfigError where the runner's package is not installed.
    """
    refuse_missing_engine(config.runner)
    if config.runner == "threads":
        return Runner()
    own = None if config.threads == "auto" else config.threads
    if config.cluster is None:
        workers = workers_here(config.workers, resolve_device(config.device))
        own = max(1, threads // workers)
        return Runner(config.runner, workers, None, own)
    return Runner(config.runner, config.workers, config.cluster, own)


def open_runtime(config: RuntimeConfig, store: Path | None, progress: Progress) -> Runtime:
    """The runtime of one run; `threads: auto` takes the cores that are idle right now."""
    threads = compute_threads(config.threads)
    limit_threads(threads)
    root = store_root(store, config)
    keep_prefect_in(root / ".prefect")
    return replace(_runtime(config, root, threads, progress), stop=SIGNALS)


def _runtime(
    config: RuntimeConfig, root: Path, threads: int, progress: Progress
) -> Runtime:
    device = resolve_device(config.device)
    return Runtime(
        store=open_store(root, leases=_leases(config)),
        device=device,
        threads=threads,
        cards=resolve_cards(config.cards, device),
        head_budget_bytes=config.head_budget_mib << 20,
        placement=config.placement,
        runner=runner_of(config, threads),
        slots=None if config.gpu_limit is None else Slots(config.gpu_limit),
        progress=progress,
    )
