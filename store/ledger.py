"""What a run asked of the store: each stage call, and whether it was found or made."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

State = Literal["cached", "ran", "resumed"]


@dataclass(frozen=True)
class StageEvent:
    """One stage call as a run reports it; `label` tells calls of one stage apart."""

    name: str
    key: str
    state: State
    seconds: float
    label: str = ""


@dataclass(frozen=True)
class Filling:
    """A stage that is being made: since when, in seconds since 1970."""

    name: str
    key: str
    label: str = ""
    since: float = field(default_factory=time.time, compare=False)


@dataclass
class Ledger:
    """Every stage call of a run, in the order in which they were answered.

    `filling` are those begun and not answered; whatever changes, `on_change` is told.
    """

    events: list[StageEvent] = field(default_factory=list)
    filling: list[Filling] = field(default_factory=list)
    on_change: Callable[["Ledger"], None] = lambda _: None
    _waited: set[str] = field(default_factory=set, repr=False)
    _elsewhere: dict[str, StageEvent] = field(default_factory=dict, repr=False)

    def begin(self, name: str, key: str, label: str = "") -> None:
        """A stage is about to be made."""
        self.filling.append(Filling(name, key, label))
        self.on_change(self)

    def waits_anew(self, called: str) -> bool:
        """Whether nothing so called was waited for before; one word of it is enough."""
        is_new = called not in self._waited
        self._waited.add(called)
        return is_new

    def made_elsewhere(self, events: Iterable[StageEvent]) -> None:
        """Workers of this run made these: where it finds them, that is what it tells."""
        self._elsewhere |= {one.key: one for one in events if one.state != "cached"}

    def add(self, event: StageEvent) -> None:
        """Append one call; threads may do so at once."""
        self.events.append(self._elsewhere.pop(event.key, event))
        self.filling = [one for one in self.filling if one.key != event.key]
        self.on_change(self)

    def listing(self) -> list[dict[str, JsonValue]]:
        """`{"name", "key", "state", "seconds"}` of each call, as `--json` prints them."""
        return [
            {"name": e.name, "key": e.key, "state": e.state, "seconds": round(e.seconds, 3)}
            for e in self.events
        ]
