"""Trains a draft on several cards of this machine: starts a process each, and watches them.

This process is none of them: it holds no card, and can end those that hang in a collective
whose partner died, which no rank could do for itself.
"""

import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

from nets.errors import Stopped
from store.manifest import WORK
from tasks.errors import RankLost
from tasks.rank_job import job_of
from tasks.stage import Runtime
from tasks.train_rank import Post
from tasks.training_run import Listener, Training

if TYPE_CHECKING:
    from nets.training import FitResult
    from tasks.rank_events import Event

LOOK_EVERY_S = 0.5
END_WITHIN_S = 10.0  # of a rank once another is done or gone; then it hangs, and is killed


@dataclass(frozen=True)
class _Rank:
    number: int
    process: "subprocess.Popen[bytes]"
    log: Path

    def listen(self, heard: "SimpleQueue[tuple[_Rank, bytes]]") -> None:
        """Every line it tells; an empty one at its end."""
        assert self.process.stdout is not None, "started with a pipe"
        for line in self.process.stdout:
            heard.put((self, line))
        heard.put((self, b""))

    def ended(self) -> int:
        """Its exit code; it is killed if it doesn't end by itself."""
        try:
            return self.process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return 0

    def kill(self) -> None:
        """End it, if it has not ended."""
        self.process.kill()
        self.process.wait()


def train_on_cards(training: Training, runtime: Runtime, listener: Listener) -> "FitResult":
    """Train on `runtime.cards` cards, or as many processes on a CPU; as one process does.

    Raises what one process does, and RankLost if one of them was killed or broke. Then, as
    after any error, no rank is left.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="heal-ranks-")))
        (training.out / WORK).mkdir(exist_ok=True)
        heard: SimpleQueue[tuple[_Rank, bytes]] = SimpleQueue()
        ranks = [
            _started(training, runtime, number, folder, stack)
            for number in range(runtime.cards)
        ]
        for rank in ranks:
            threading.Thread(target=rank.listen, args=(heard,), daemon=True).start()
        return _Watch(ranks, heard, listener, runtime).result()


def _started(
    training: Training, runtime: Runtime, number: int, folder: Path, stack: ExitStack
) -> _Rank:
    post = Post(
        rank=number,
        size=runtime.cards,
        meeting=folder / "meeting",
        job=job_of(training, runtime, ranks_here=runtime.cards),
    )
    told = folder / f"rank-{number}.json"
    told.write_text(post.model_dump_json())
    log = training.out / WORK / f"rank-{number}.log"
    process = subprocess.Popen(
        [sys.executable, "-m", "tasks.train_rank", str(told)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stack.enter_context(log.open("wb")),
        bufsize=0,
        start_new_session=True,  # Ctrl-C is for us: ranks stop together, when they are told
    )
    rank = _Rank(number, process, log)
    stack.callback(_close, process.stdin, process.stdout)
    stack.callback(rank.kill)
    return rank


def _close(*pipes: IO[bytes] | None) -> None:
    for pipe in pipes:
        if pipe is not None:
            pipe.close()


@dataclass
class _Watch:
    """What the ranks tell, until the first is done or one is lost."""

    ranks: Sequence[_Rank]
    heard: "SimpleQueue[tuple[_Rank, bytes]]"
    listener: Listener
    runtime: Runtime
    was_told_to_stop: bool = False

    def result(self) -> "FitResult":
        """What rank 0 came to."""
        from tasks.rank_events import Event

        while True:
            self._tell_to_stop()
            try:
                rank, line = self.heard.get(timeout=LOOK_EVERY_S)
            except Empty:
                continue
            if not line:
                self._refuse_lost(rank)
                continue
            event = Event.read(line)
            event.tell(self.listener)
            self._raise_ended(rank, event)
            if event.result is not None:
                for each in self.ranks:
                    each.ended()
                return event.result.fit_result()

    def _tell_to_stop(self) -> None:
        if self.runtime.stop.is_set() and not self.was_told_to_stop:
            self.was_told_to_stop = True
            first = self.ranks[0].process.stdin
            assert first is not None, "started with a pipe"
            first.write(b"s")

    def _raise_ended(self, rank: _Rank, event: "Event") -> None:
        if event.failed is not None:
            raise event.failed.error(rank.number)
        if event.stopped is not None:
            for each in self.ranks:
                each.ended()
            raise Stopped(event.stopped)

    def _refuse_lost(self, rank: _Rank) -> None:
        """Raise what went wrong, unless this rank has only done its part."""
        if rank.number > 0 and rank.ended() == 0:
            return
        from tasks.rank_events import Event

        codes = {each: each.ended() for each in self.ranks}
        while not self.heard.empty():
            told_by, line = self.heard.get()
            if line and (event := Event.read(line)).failed is not None:
                raise event.failed.error(told_by.number)
        # Those that wait for a lost rank break after it: a killed one, else the first.
        blamed = min(self.ranks, key=lambda each: (codes[each] >= 0, each is not rank))
        raise RankLost(_said_of(blamed, codes[blamed], len(self.ranks)))


def _said_of(rank: _Rank, code: int, size: int) -> str:
    lines = rank.log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    why = "by the kernel if memory ran out" if code < 0 else lines[-1]
    return (
        f"rank {rank.number} of {size} {how} ({why}); the others were ended, the same "
        f"command goes on from the last checkpoint; what it said is in {rank.log}"
    )
