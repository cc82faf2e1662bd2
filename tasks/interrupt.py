"""Ctrl-C and SIGTERM: what can stop between two steps does, everything else at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from nets.errors import Stopped

__all__ = ["SIGNALS", "StopFlag", "Stopped", "stopping_on_signals"]


class StopFlag:
    """Whether a run was asked to stop, and by which signal; by default it never is."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._heeding = 0
        self.signal: int = signal.SIGINT

    def is_set(self) -> bool:
        """Whether someone asked."""
        return self._asked.is_set()

    def check(self, where: str) -> None:
        """Raise Stopped if someone asked; `where`, as in "after step 7", is told."""
        if self.is_set():
            raise Stopped(where)

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """While this lasts a first signal waits for the next `check`."""
        self._heeding += 1
        try:
            yield
        finally:
            self._heeding -= 1

    def ask(self, number: int, _frame: FrameType | None = None) -> None:
        """A signal came: a second one, or one that nobody heeds, interrupts at once."""
        is_second = self.is_set()
        self.signal = number
        self._asked.set()
        if is_second or not self._heeding:
            raise KeyboardInterrupt

    def clear(self) -> None:
        """Forget that anyone asked."""
        self._asked.clear()
        self.signal = signal.SIGINT


# A process has one set of signal handlers, so one flag that they set.
SIGNALS = StopFlag()


@contextmanager
def stopping_on_signals(flag: StopFlag) -> Iterator[None]:
    """Have Ctrl-C and SIGTERM set the flag; an ignored one (`nohup`) stays ignored."""
    flag.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, flag.ask) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
