"""How much of a piece of work is done, how fast it goes, and when it will be over."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypedDict


class Counting(TypedDict, total=False):
    """How a piece of work is counted, all of it optional.

    `total` is None if nobody knows. `each` says what else goes by with a unit:
    `{"tokens": 4096.0}` for a step.
    """

    total: int | None
    unit: str
    each: Mapping[str, float]


@dataclass
class Count:
    """What has been done of one piece of work, and how fast; `clock` in seconds."""

    name: str
    total: int | None = None
    unit: str = ""
    each: Mapping[str, float] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    before: int = 0
    values: dict[str, float] = field(default_factory=dict)
    started: float = field(init=False)
    _first: tuple[float, int] | None = field(default=None, init=False)  # when, and units
    _last: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def add(self, count: int, values: Mapping[str, float]) -> None:
        """Count `count` more units."""
        self.done += count
        self.values.update(values)
        self._last = self.clock()
        if self._first is None:
            self._first = (self._last, count)

    def skip(self, count: int) -> None:
        """Count units that were done before: found in the store, or by the run resumed."""
        self.done += count
        self.before += count

    def rate(self) -> float | None:
        """Units a second so far; None before the first."""
        elapsed = self.clock() - self.started
        made = self.done - self.before
        return made / elapsed if elapsed > 0 and made else None

    def at_pace_s(self) -> float | None:
        """Seconds for all that was made, at the pace after the first; None if nothing was.

        The first pays for what is only done once. Alone it is taken for the pace itself.
        """
        made = self.done - self.before
        if self._first is None or not made:
            return None
        at, units = self._first
        elapsed = self._last - self.started
        if made == units:
            return round(elapsed, 3)
        return round(min((self._last - at) * made / (made - units), elapsed), 3)

    def left_s(self) -> float | None:
        """Seconds left at the rate so far; None if nobody can know."""
        rate = self.rate()
        if rate is None or self.total is None:
            return None
        return max(self.total - self.done, 0) / rate

    @property
    def has_figures(self) -> bool:
        """Whether there is more to say of it than its name."""
        return bool(self.done) or self.total is not None

    def line(self) -> str:
        """All of it as one line of text."""
        return f"{self.name}: {self.state()}"

    def state(self) -> str:
        """The line without its name."""
        of = "" if self.total is None else f" of {self.total:,}"
        percent = f" ({100 * self.done // self.total} %)" if self.total else ""
        said = [f"{self.done:,}{of} {self.unit}".rstrip() + percent, *self._speeds()]
        left_s = self.left_s()
        if left_s is not None:
            said.append(f"{duration(left_s)} left")
        said += [f"{name} {value:.4g}" for name, value in self.values.items()]
        return ", ".join(said)

    def _speeds(self) -> Iterator[str]:
        rate = self.rate()
        if rate is None:
            return
        if self.unit == "steps":
            yield f"{_figure(1 / rate)} s/step"
        elif self.unit == "bytes":
            yield f"{_figure(rate / 1e6)} MB/s"
        else:
            yield f"{_figure(rate)} {self.unit or 'steps'}/s"
        for name, count in self.each.items():
            yield f"{_figure(rate * count)} {name}/s"


def _figure(value: float) -> str:
    """Three digits of a small number, all of a large one's before the point."""
    return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s` or `2 h 04 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
