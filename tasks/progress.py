"""How far a stage is: bars on a terminal, lines in a log, a file for other programs."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from store.atomic import write_whole

if TYPE_CHECKING:
    from rich.progress import Progress as RichBars
    from rich.progress import TaskID

LINE_EVERY_S = 5.0
FILE_EVERY_S = 2.0


class Bar(Protocol):
    """One piece of work under way."""

    def advance(self, count: int = 1, **values: float) -> None:
        """Say that `count` more units are done; `values` are shown as they are now."""


class Progress(Protocol):
    """Where a run says what it is doing."""

    def task(
        self, name: str, *, total: int | None = None, unit: str = ""
    ) -> AbstractContextManager[Bar]:
        """A bar for one piece of work; `total` None if nobody knows."""

    def say(self, text: str) -> None:
        """One line for a human."""


@dataclass
class Count:
    """What has been done of one piece of work, and how fast; `clock` in seconds."""

    name: str
    total: int | None
    unit: str
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    values: dict[str, float] = field(default_factory=dict)
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def add(self, count: int, values: Mapping[str, float]) -> None:
        """Count `count` more units."""
        self.done += count
        self.values.update(values)

    def rate(self) -> float | None:
        """Units a second so far; None before the first."""
        elapsed = self.clock() - self.started
        return self.done / elapsed if elapsed > 0 and self.done else None

    def left_s(self) -> float | None:
        """Seconds left at the rate so far; None if nobody can know."""
        rate = self.rate()
        if rate is None or self.total is None:
            return None
        return max(self.total - self.done, 0) / rate

    def line(self) -> str:
        """All of it as one line of text."""
        of = "" if self.total is None else f" of {self.total:,}"
        percent = f" ({100 * self.done // self.total} %)" if self.total else ""
        said = [f"{self.done:,}{of} {self.unit}".rstrip() + percent]
        rate, left_s = self.rate(), self.left_s()
        if rate is not None:
            said.append(
                f"{rate:,.3g} {self.unit or 'steps'}/s"
                if rate < 100
                else f"{rate:,.0f} {self.unit or 'steps'}/s"
            )
        if left_s is not None:
            said.append(f"{duration(left_s)} left")
        said += [f"{name} {value:.4g}" for name, value in self.values.items()]
        return f"{self.name}: " + ", ".join(said)


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s` or `2 h 04 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


@dataclass
class SilentProgress:
    """Says nothing; keeps what was said for whoever asks."""

    said: list[str] = field(default_factory=list)

    @contextmanager
    def task(self, name: str, *, total: int | None = None, unit: str = "") -> Iterator[Bar]:
        """A bar nobody sees."""
        yield _SilentBar()

    def say(self, text: str) -> None:
        """Keep the line."""
        self.said.append(text)


class _SilentBar:
    def advance(self, count: int = 1, **values: float) -> None:
        """Nothing to show."""


@dataclass
class LineProgress:
    """Plain lines for a log: one every few seconds and one at the end of a task."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    every_s: float = LINE_EVERY_S
    clock: Callable[[], float] = time.monotonic

    @contextmanager
    def task(self, name: str, *, total: int | None = None, unit: str = "") -> Iterator[Bar]:
        """A bar that prints a line when `every_s` have passed since the last."""
        bar = _TimedBar(Count(name, total, unit, self.clock), self.every_s, self._print)
        yield bar
        self._print(bar.count)

    def say(self, text: str) -> None:
        """Print the line."""
        self.stream.write(text + "\n")
        self.stream.flush()

    def _print(self, count: Count) -> None:
        self.say(count.line())


class _TimedBar:
    """Counts, and shows the count when `every_s` have passed since it was last shown."""

    def __init__(self, count: Count, every_s: float, show: Callable[[Count], None]) -> None:
        self.count = count
        self._every_s = every_s
        self._show = show
        self._shown = count.started

    def advance(self, count: int = 1, **values: float) -> None:
        self.count.add(count, values)
        now = self.count.clock()
        if now - self._shown >= self._every_s:
            self._shown = now
            self._show(self.count)


class RichProgress:
    """Bars on a terminal's stderr with rate and time left; they vanish when done."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bars: RichBars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[line]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._open = 0

    @contextmanager
    def task(self, name: str, *, total: int | None = None, unit: str = "") -> Iterator[Bar]:
        """A bar that is drawn while the task lasts."""
        if self._open == 0:
            self._bars.start()
        self._open += 1
        task = self._bars.add_task(name, total=total, line="")
        try:
            yield _RichBar(self._bars, task, Count(name, total, unit))
        finally:
            self._bars.remove_task(task)
            self._open -= 1
            if self._open == 0:
                self._bars.stop()

    def say(self, text: str) -> None:
        """Print the line above the bars."""
        self._bars.console.print(text, markup=False, highlight=False)


class _RichBar:
    def __init__(self, bars: "RichBars", task: "TaskID", count: Count) -> None:
        self._bars = bars
        self._task = task
        self._count = count

    def advance(self, count: int = 1, **values: float) -> None:
        self._count.add(count, values)
        line = self._count.line().removeprefix(f"{self._count.name}: ")
        self._bars.update(self._task, advance=count, line=line)


@dataclass
class FiledProgress:
    """Another progress, which also keeps `path` up to date as JSON for other programs."""

    inner: Progress
    path: Path
    every_s: float = FILE_EVERY_S

    @contextmanager
    def task(self, name: str, *, total: int | None = None, unit: str = "") -> Iterator[Bar]:
        """The inner bar, and a count beside it that is written every `every_s`."""
        with self.inner.task(name, total=total, unit=unit) as bar:
            yield _FiledBar(
                bar, _TimedBar(Count(name, total, unit), self.every_s, self._write)
            )

    def say(self, text: str) -> None:
        """Say it there."""
        self.inner.say(text)

    def _write(self, count: Count) -> None:
        state = {
            "task": count.name,
            "done": count.done,
            "total": count.total,
            "unit": count.unit,
            "left_s": count.left_s(),
            "values": count.values,
        }
        try:
            self.path.parent.mkdir(exist_ok=True)
            write_whole(self.path, json.dumps(state).encode())
        except OSError:
            return  # a courtesy to onlookers: what fills the disk will say so itself


class _FiledBar:
    def __init__(self, bar: Bar, filed: _TimedBar) -> None:
        self._bar = bar
        self._filed = filed

    def advance(self, count: int = 1, **values: float) -> None:
        self._bar.advance(count, **values)
        self._filed.advance(count, **values)


def make_progress(*, quiet: bool = False) -> Progress:
    """Bars if stderr is a terminal, else lines; nothing if `quiet`."""
    if quiet:
        return SilentProgress()
    return RichProgress() if sys.stderr.isatty() else LineProgress()
