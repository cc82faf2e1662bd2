"""`python -m tasks.train_rank POST`: one of the processes that train a draft together.

What it tells goes out as JSON lines, everything else (warnings, NCCL's own words) to its
log. A byte on stdin asks it to stop; the end of stdin means that who started it is gone.
"""

import os
import signal
import sys
import threading
import traceback
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from conf.cards import stay_on_this_machine
from conf.machine import keep_freed_memory, limit_threads
from tasks.interrupt import StopFlag
from tasks.rank_job import RankJob


class Post(BaseModel):
    """Where one rank stands; `meeting` is a file in which all of them meet."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int
    size: int
    meeting: Path
    job: RankJob


def main() -> None:
    """Work until the training is over."""
    post = Post.model_validate_json(Path(sys.argv[1]).read_bytes())
    told = os.dup(1)
    os.dup2(2, 1)
    stop = StopFlag()
    with stop.heeded():
        threading.Thread(target=_heed, args=(stop,), daemon=True).start()
        keep_freed_memory()
        limit_threads(post.job.threads)
        stay_on_this_machine()
        sys.exit(_work(post, told, stop))


def _heed(stop: StopFlag) -> None:
    while os.read(0, 1):
        stop.ask(signal.SIGINT)
    os._exit(1)  # nobody is left to train for, and a card's collective can't be interrupted


def _work(post: Post, told: int, stop: StopFlag) -> int:
    """The exit code."""
    from nets.errors import Stopped
    from nets.ranks import Ranks, joined, meeting_in
    from tasks.rank_events import Event, EventListener, Result, event_of
    from tasks.training_run import run_training

    def send(event: Event) -> None:
        os.write(told, event.line())

    job, own = post.job, Ranks(post.rank, post.size)
    card = post.rank if job.device == "cuda" else None
    try:
        with joined(own, meeting_in(post.meeting, post.size), card) as ranks:
            runtime = job.runtime(stop)
            training = job.training(runtime.store)
            result = run_training(training, runtime, EventListener(send), ranks)
    except Exception as error:  # noqa: BLE001 — told to whoever raises it
        traceback.print_exc()
        event = event_of(error)
        is_stop = isinstance(error, Stopped)
        if event is not None and (own.is_first or not is_stop):
            send(event)
        return 0 if is_stop else 1
    if own.is_first:
        found = (result.steps, result.evaluations, result.skipped)
        send(Event(result=Result(steps=found[0], evaluations=found[1], skipped=found[2])))
    return 0


if __name__ == "__main__":
    main()
