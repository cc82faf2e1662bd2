"""Draft training among the processes of `torchrun`, on one machine or several.

Rank 0 runs the command; the others wait in torchrun's own store of keys for trainings, and
for the end. If one dies, torchrun ends them all.
"""

import signal
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from conf.cards import Place, torchrun_place
from conf.machine import limit_threads
from nets.errors import Stopped
from tasks.interrupt import StopFlag
from tasks.rank_job import RankJob, job_of
from tasks.stage import Runtime
from tasks.training_run import Listener, Training, Unheard, run_training

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store as Keys

    from nets.training import FitResult

TRAININGS = "heal/trainings"
NONE_LEFT = "none left"
WHOLE_RUN = timedelta(days=365)  # rank 0 may run a trunk for days before it trains


def train_with_others(
    training: Training, runtime: Runtime, listener: Listener
) -> "FitResult":
    """Rank 0's part: post the training, then train; as `run_training`."""
    place = torchrun_place()
    assert place is not None, "asked for by _trained"
    job = job_of(training, runtime, ranks_here=1)
    keys = _keys()
    number = _post(keys, job.model_dump_json())
    return _Among(keys, number, place).train(training, runtime, listener)


def dismiss_others() -> None:
    """Tell the other ranks that nothing is left to train."""
    _post(_keys(), NONE_LEFT)


def serve(place: Place) -> None:
    """What every rank but 0 does: train when rank 0 trains, until it is done.

    Signals are rank 0's: it stops the training for all.
    """
    for signalled in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signalled, signal.SIG_IGN)
    keys, number = _keys(), 1
    while (job := _job(keys, number)) is not None:
        limit_threads(job.threads)
        runtime = job.runtime(StopFlag())
        training = job.training(runtime.store)
        with suppress(Stopped):
            _Among(keys, number, place).train(training, runtime, Unheard())
        number += 1


@dataclass(frozen=True)
class _Among:
    """This process's place in the training of a number."""

    keys: "Keys"
    number: int
    place: Place

    def train(
        self, training: Training, runtime: Runtime, listener: Listener
    ) -> "FitResult":
        """Once all are here, `run_training`."""
        from nets.ranks import Ranks, joined, meeting_among

        own = Ranks(self.place.rank, self.place.size)
        card = self.place.card if runtime.device == "cuda" else None
        meeting = meeting_among(self.keys, f"heal/{self.number}")
        with joined(own, meeting, card) as ranks:
            return run_training(training, runtime, listener, ranks)


def _keys() -> "Keys":
    """The keys that torchrun keeps for its processes."""
    from torch.distributed.rendezvous import rendezvous

    keys: Keys = next(iter(rendezvous("env://", timeout=WHOLE_RUN)))[0]
    return keys


def _post(keys: "Keys", text: str) -> int:
    """Leave a training, or the end, for the others; its number from 1."""
    number = keys.add(TRAININGS, 1)
    keys.set(f"{TRAININGS}/{number}", text)
    return number


def _job(keys: "Keys", number: int) -> RankJob | None:
    """The training of this number once it is posted; None after the last."""
    name = f"{TRAININGS}/{number}"
    keys.wait([name], WHOLE_RUN)
    text = keys.get(name).decode()
    return None if text == NONE_LEFT else RankJob.model_validate_json(text)
