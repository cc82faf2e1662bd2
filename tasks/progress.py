"""How far a stage is: bars on a terminal, lines in a log, a file for other programs."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO, Unpack

from store.atomic import replace_whole
from store.nearest import AT_PACE
from tasks.count import Count, Counting

if TYPE_CHECKING:
    from rich.progress import Progress as RichBars
    from rich.progress import TaskID

FIRST_LINE_S, LINE_EVERY_S = 2.0, 5.0
FILE_EVERY_S = 2.0


class Bar(Protocol):
    """One piece of work under way."""

    def advance(self, count: int = 1, **values: float) -> None:
        """Say that `count` more units are done; `values` are shown as they are now."""

    def skip(self, count: int) -> None:
        """Say that `count` units were done before: they count as done, not as speed."""


class Progress(Protocol):
    """Where a run says what it is doing."""

    def task(self, name: str, **how: Unpack[Counting]) -> AbstractContextManager[Bar]:
        """A bar for one piece of work."""

    def say(self, text: str) -> None:
        """One line for a human."""


@dataclass
class SilentProgress:
    """Says nothing; keeps what was said for whoever asks."""

    said: list[str] = field(default_factory=list)

    @contextmanager
    def task(self, name: str, **how: Unpack[Counting]) -> Iterator[Bar]:
        """A bar nobody sees."""
        yield _SilentBar()

    def say(self, text: str) -> None:
        """Keep the line."""
        self.said.append(text)


class _SilentBar:
    def advance(self, count: int = 1, **values: float) -> None:
        """Nothing to show."""

    def skip(self, count: int) -> None:
        """Nothing to show."""


@dataclass
class LineProgress:
    """Plain lines for a log: one every few seconds and one at the end of a task.

    A task that says nothing of itself for `first_s` is named, unless one within it runs.
    """

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    every_s: float = LINE_EVERY_S
    clock: Callable[[], float] = time.monotonic
    first_s: float = FIRST_LINE_S
    _open: "list[TimedBar]" = field(default_factory=list, init=False)

    @contextmanager
    def task(self, name: str, **how: Unpack[Counting]) -> Iterator[Bar]:
        """A bar that prints a line when `every_s` have passed since the last.

        One of no known length that counted nothing leaves no line.
        """
        bar = TimedBar(Count(name, **how, clock=self.clock), self.every_s, self._print)
        with self._named_if_long(bar):
            yield bar
        if bar.count.has_figures:
            self._print(bar.count)

    def say(self, text: str) -> None:
        """Print the line."""
        self.stream.write(text + "\n")
        self.stream.flush()

    @contextmanager
    def _named_if_long(self, bar: "TimedBar") -> Iterator[None]:
        over = threading.Event()
        naming = threading.Thread(target=self._name, args=(bar, over), daemon=True)
        self._open.append(bar)
        naming.start()
        try:
            yield
        finally:
            over.set()
            naming.join()
            self._open.remove(bar)

    def _name(self, bar: "TimedBar", over: threading.Event) -> None:
        while not over.wait(self.first_s) and not bar.was_shown:
            if self._open[-1] is bar:
                bar.show()

    def _print(self, count: Count) -> None:
        self.say(count.line() if count.has_figures else f"{count.name} …")


class TimedBar:
    """A bar that counts, and shows the count at most every `every_s` seconds."""

    def __init__(self, count: Count, every_s: float, show: Callable[[Count], None]) -> None:
        self.count = count
        self._every_s = every_s
        self._show = show
        self._shown = count.started
        self.was_shown = False

    def advance(self, count: int = 1, **values: float) -> None:
        """Count on, and show it if it is time."""
        self.count.add(count, values)
        self._show_if_due()

    def skip(self, count: int) -> None:
        """Count what was done before, and show it if it is time."""
        self.count.skip(count)
        self._show_if_due()

    def _show_if_due(self) -> None:
        if self.count.total is not None and self.count.done >= self.count.total:
            return  # the end of the task shows that
        if self.count.clock() - self._shown >= self._every_s:
            self.show()

    def show(self) -> None:
        """Show the count as it is now."""
        self.was_shown, self._shown = True, self.count.clock()
        self._show(self.count)


class RichProgress:
    """Bars on a terminal's stderr with rate and time left; they vanish when done."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        folded = Column(ratio=1, overflow="fold")  # 80 columns may take two lines
        self._bars: RichBars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[line]}", markup=False, table_column=folded),
            console=Console(stderr=True),
            expand=True,
            transient=True,
        )
        self._open = 0

    @contextmanager
    def task(self, name: str, **how: Unpack[Counting]) -> Iterator[Bar]:
        """A bar that is drawn while the task lasts."""
        if self._open == 0:
            self._bars.start()
        self._open += 1
        count = Count(name, **how)
        task = self._bars.add_task(name, total=count.total, line="")
        try:
            yield _RichBar(self._bars, task, count)
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
        self._show()

    def skip(self, count: int) -> None:
        self._count.skip(count)
        self._show()

    def _show(self) -> None:
        done, line = self._count.done, self._count.state()
        self._bars.update(self._task, completed=done, line=line)


@dataclass
class FiledProgress:
    """Another progress, which also keeps `path` up to date as JSON for other programs."""

    inner: Progress
    path: Path
    every_s: float = FILE_EVERY_S
    counts: list[Count] = field(default_factory=list)

    @contextmanager
    def task(self, name: str, **how: Unpack[Counting]) -> Iterator[Bar]:
        """The inner bar, and a count beside it that is written every `every_s`."""
        count = Count(name, **how)
        self.counts.append(count)
        self._write(count)
        with self.inner.task(name, **how) as bar:
            yield _FiledBar(bar, TimedBar(count, self.every_s, self._write))
        self._write(count, is_over=True)

    def paces(self) -> dict[str, float]:
        """A note for plans: the seconds of all that was counted here, at its pace."""
        paces = [pace for one in self.counts if (pace := one.at_pace_s()) is not None]
        return {AT_PACE: sum(paces)} if paces else {}

    def say(self, text: str) -> None:
        """Say it there."""
        self.inner.say(text)

    def _write(self, count: Count, *, is_over: bool = False) -> None:
        state = {
            "task": count.name,
            "done": count.done,
            "total": count.total,
            "unit": count.unit,
            "left_s": count.left_s(),
            "values": count.values,
            "line": count.line(),
            "over": is_over,
            "at": time.time(),
        }
        try:
            self.path.parent.mkdir(exist_ok=True)
            replace_whole(self.path, json.dumps(state).encode())
        except OSError:
            return  # a courtesy to onlookers: what fills the disk will say so itself


class _FiledBar:
    def __init__(self, bar: Bar, filed: TimedBar) -> None:
        self._bar = bar
        self._filed = filed

    def advance(self, count: int = 1, **values: float) -> None:
        self._bar.advance(count, **values)
        self._filed.advance(count, **values)

    def skip(self, count: int) -> None:
        self._bar.skip(count)
        self._filed.skip(count)


def make_progress(*, quiet: bool = False) -> Progress:
    """Bars if stderr is a terminal, else lines; nothing if `quiet`."""
    if quiet:
        return SilentProgress()
    return RichProgress() if sys.stderr.isatty() else LineProgress()
