"""What a run asked of the store: each stage call, and whether it was found or made."""

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


@dataclass
class Ledger:
    """Every stage call of a run, in the order in which they were answered."""

    events: list[StageEvent] = field(default_factory=list)

    def add(self, event: StageEvent) -> None:
        """Append one call; threads may do so at once."""
        self.events.append(event)

    def listing(self) -> list[dict[str, JsonValue]]:
        """`{"name", "key", "state", "seconds"}` of each call, as `--json` prints them."""
        return [
            {"name": e.name, "key": e.key, "state": e.state, "seconds": round(e.seconds, 3)}
            for e in self.events
        ]
