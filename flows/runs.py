"""A run written down while it happens, for `heal status` and `heal report`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import yaml
from pydantic import BaseModel

from nets.errors import Stopped
from store.runs import open_run
from tasks.progress import FiledProgress
from tasks.report import ReportFiles
from tasks.stage import Runtime


@dataclass
class Recording:
    """A run that is being written down: the runtime to run it with, then its report."""

    runtime: Runtime
    report: str | None = None

    def reported(self, files: ReportFiles) -> None:
        """The run came to its report."""
        self.report = f"report/{files.run}"


@contextmanager
def recorded(runtime: Runtime, command: str, config: BaseModel) -> Iterator[Recording]:
    """Writes the run in the store's book: its stages as they come, and how it ends.

    A store that cannot be written, which is enough for a run that finds everything, gets
    no entry.
    """
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
    run = open_run(runtime.store.root, command, text)
    if run is None:
        yield Recording(runtime)
        return
    runtime.ledger.on_change = run.follow
    progress = FiledProgress(runtime.progress, run.progress_path)
    recording = Recording(replace(runtime, progress=progress))
    try:
        yield recording
    except (KeyboardInterrupt, Stopped) as stopped:
        run.follow(runtime.ledger)
        run.end("interrupted", error=str(stopped) or None)
        raise
    except BaseException as error:
        run.follow(runtime.ledger)
        run.end("failed", error=f"{error}" or type(error).__name__)
        raise
    run.follow(runtime.ledger)
    run.end("done", report=recording.report)
