"""Where a run computes and keeps its artifacts: from settings, options, environment."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from conf.machine import (
    environment_store,
    host_threads,
    idle_cores,
    limit_threads,
    resolve_device,
)
from conf.schema import RuntimeConfig
from store.store import Store, refuse_no_folder
from tasks.interrupt import SIGNALS
from tasks.progress import Progress
from tasks.stage import Ledger, Runtime
from tasks.told_progress import Tell, ToldProgress

DEFAULT_STORE = "./.heal"


def store_root(option: Path | None, config: RuntimeConfig) -> Path:
    """`--store`, else HEAL_STORE, else runtime.store, else ./.heal.

    NotAStore if it, or a folder it would lie in, is a file.
    """
    root = Path(option or environment_store() or config.store or DEFAULT_STORE)
    refuse_no_folder(root)
    return root


def asked_store(option: Path | None) -> Path:
    """The store of a command without a configuration, absolute."""
    return store_root(option, RuntimeConfig()).absolute()


def library_runtime(config: RuntimeConfig, store: Path | None, tell: Tell) -> Runtime:
    """A runtime that leaves its process as it is: no environment, signals or threads.

    It computes on the threads that the host has set; `threads` of the configuration is for
    commands.
    """
    return Runtime(
        store=Store(Path(store or config.store or DEFAULT_STORE)),
        device=resolve_device(config.device),
        threads=host_threads(),
        head_budget_bytes=config.head_budget_mib << 20,
        placement=config.placement,
        progress=ToldProgress(tell),
    )


def command_line(verb: str, what: str, overrides: Sequence[str]) -> str:
    """The command that does the same again, for reports."""
    return f"heal {verb} {what}" + "".join(
        f" --set {shlex.quote(text)}" for text in overrides
    )


def open_runtime(config: RuntimeConfig, store: Path | None, progress: Progress) -> Runtime:
    """The runtime of one run; `threads: auto` takes the cores that are idle right now."""
    threads = idle_cores() if config.threads == "auto" else config.threads
    limit_threads(threads)
    return Runtime(
        store=Store(store_root(store, config)),
        device=resolve_device(config.device),
        threads=threads,
        head_budget_bytes=config.head_budget_mib << 20,
        placement=config.placement,
        progress=progress,
        ledger=Ledger(),
        stop=SIGNALS,
    )
