"""How far a deployed run is: lines in its log, a bar on its page for what takes long."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Unpack
from uuid import UUID

import httpx
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.exceptions import PrefectException
from prefect.logging import get_run_logger

from tasks.count import Count, Counting
from tasks.progress import Bar, TimedBar
from tasks.stage_artifacts import IN_THREAD, server_answers

EVERY_S = 5.0


class FlowProgress:
    """Says things in the log of the run or task it is in; bars after `every_s`."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s

    @contextmanager
    def task(self, name: str, **how: Unpack[Counting]) -> Iterator[Bar]:
        """A bar that is logged every few seconds; what ends before that is only logged."""
        shown = _Shown()

        def show(count: Count) -> None:
            self.say(count.line())
            shown.at(count)

        bar = TimedBar(Count(name, **how), self._every_s, show)
        yield bar
        if shown.artifact is not None:
            show(bar.count)

    def say(self, text: str) -> None:
        """One line in the run's log."""
        get_run_logger().info("%s", text)


class _Shown:
    """The progress artifact of one bar; none before it is first shown."""

    def __init__(self) -> None:
        self.artifact: UUID | None = None

    def at(self, count: Count) -> None:
        if not count.total or not server_answers():
            return
        percent = min(100.0, 100 * count.done / count.total)
        try:
            if self.artifact is None:
                made = create_progress_artifact(
                    percent, key="progress", description=count.name, **IN_THREAD
                )
                assert isinstance(made, UUID)
                self.artifact = made
            else:
                update_progress_artifact(
                    self.artifact, percent, description=count.line(), **IN_THREAD
                )
        except (httpx.HTTPError, PrefectException):
            # The server is away: the log has the line, the work goes on.
            logging.getLogger(__name__).debug("no progress shown", exc_info=True)
