"""Progress as calls: for a program that heals as one of its steps."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Unpack

from tasks.count import Count, Counting
from tasks.progress import Bar, TimedBar

EVERY_S = 0.5


@dataclass(frozen=True)
class Event:
    """One thing to tell: a `text`, or how far a task is (`total` None: nobody knows).

    `values` are what it shows besides, as the loss; `left_s` seconds, once that is known.
    """

    text: str
    task: str | None = None
    done: int = 0
    total: int | None = None
    unit: str = ""
    left_s: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)


Tell = Callable[[Event], None]


def tell_nobody(_: Event) -> None:
    """Where nobody wants to know."""


@dataclass(frozen=True)
class ToldProgress:
    """Calls `tell` for every line, at the start and end of a task, and in between."""

    tell: Tell
    every_s: float = EVERY_S

    @contextmanager
    def task(self, name: str, **how: Unpack[Counting]) -> Iterator[Bar]:
        """A bar that tells what it counts, at most once in `every_s`."""
        bar = TimedBar(Count(name, **how), self.every_s, self._tell)
        self._tell(bar.count)
        yield bar
        self._tell(bar.count)

    def say(self, text: str) -> None:
        """Tell the line."""
        self.tell(Event(text))

    def _tell(self, count: Count) -> None:
        self.tell(
            Event(
                text=count.line(),
                task=count.name,
                done=count.done,
                total=count.total,
                unit=count.unit,
                left_s=count.left_s(),
                values=dict(count.values),
            )
        )
