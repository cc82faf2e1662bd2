"""Where and how a run computes: what every stage gets and no key holds."""

from dataclasses import dataclass, field

from conf.machine import Device
from conf.runner import Runner
from conf.schema import Placement
from store.ledger import Ledger
from store.store import Store
from tasks.interrupt import StopFlag
from tasks.planning import Planner
from tasks.progress import Progress, SilentProgress
from tasks.slots import Slots

HERE = Runner()


@dataclass(frozen=True)
class Runtime:
    """Where and how a run computes: in no key, so it may change rounding, never meaning."""

    store: Store
    device: Device = "cpu"
    threads: int = 1
    cards: int = 1  # processes of this machine that train a draft together
    head_budget_bytes: int = 256 << 20
    placement: Placement = "auto"
    runner: Runner = HERE
    slots: Slots | None = None
    progress: Progress = field(default_factory=SilentProgress)
    ledger: Ledger = field(default_factory=Ledger)
    stop: StopFlag = field(default_factory=StopFlag)
    planner: Planner | None = None  # with one no stage runs: tasks/planning.py
