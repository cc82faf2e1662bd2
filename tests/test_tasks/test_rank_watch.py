"""Whoever watches the ranks: small programs stand for them, and end in every way."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

import pytest

from nets.errors import ModelError, Stopped
from store.store import Store
from tasks import card_ranks
from tasks.card_ranks import _Rank, _Watch
from tasks.errors import RankLost
from tasks.interrupt import StopFlag
from tasks.rank_events import Event, Failure, Result
from tasks.stage import Runtime
from tasks.training_run import Unheard

Watching = Callable[..., _Watch]

SLEEP = "import time; time.sleep(60)"
DIE = "import os; os.kill(os.getpid(), 9)"
BREAK = "import sys; sys.exit('ncclInternalError: went away')"
HEED = "import sys; sys.stdin.buffer.read(1); print({said!r}, flush=True)"


def tells(event: Event, then: str = "") -> str:
    """A program that tells that, and goes on with `then`."""
    return f"print({event.line().decode().strip()!r}, flush=True)\n{then}"


class Heard(Unheard):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def watching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watching]:
    """A watch over ranks that run these programs, which end with the test."""
    monkeypatch.setattr(card_ranks, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(card_ranks, "END_WITHIN_S", 5.0)
    with ExitStack() as stack:

        def watch(*programs: str, stop: StopFlag | None = None) -> _Watch:
            heard: SimpleQueue[tuple[_Rank, bytes]] = SimpleQueue()
            ranks = []
            for number, program in enumerate(programs):
                log = tmp_path / f"rank-{number}.log"
                process = subprocess.Popen(
                    [sys.executable, "-c", program],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stack.enter_context(log.open("wb")),
                    bufsize=0,
                )
                rank = _Rank(number, process, log)
                reader = threading.Thread(target=rank.listen, args=(heard,), daemon=True)
                reader.start()
                stack.callback(card_ranks._close, process.stdin, process.stdout)
                stack.callback(reader.join)
                stack.callback(rank.kill)
                ranks.append(rank)
            runtime = Runtime(store=Store(tmp_path / "store"), stop=stop or StopFlag())
            return _Watch(ranks, heard, Heard(), runtime)

        yield watch


DONE = Event(result=Result(steps=(), evaluations=(), skipped=3))


def test_what_rank_0_came_to_is_the_result_once_all_ended(watching: Watching) -> None:
    watch = watching(tells(Event(say="warming up"), tells(DONE)), "")
    assert watch.result().skipped == 3
    assert watch.listener.said == ["warming up"]  # type: ignore[attr-defined]  # Heard
    assert [rank.process.returncode for rank in watch.ranks] == [0, 0]


def test_a_rank_that_hangs_after_the_end_is_killed(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card_ranks, "END_WITHIN_S", 0.2)
    watch = watching(tells(DONE), SLEEP)
    assert watch.result().skipped == 3
    assert watch.ranks[1].process.returncode == -9


def test_a_stop_is_told_to_rank_0_which_says_where(watching: Watching) -> None:
    said = Event(stopped="after step 7").line().decode().strip()
    stop = StopFlag()
    with stop.heeded():
        stop.ask(2)
    watch = watching(HEED.format(said=said), "", stop=stop)
    with pytest.raises(Stopped, match="after step 7"):
        watch.result()


@pytest.mark.parametrize("by", [0, 1])
def test_an_error_of_any_rank_is_raised_as_its_kind(watching: Watching, by: int) -> None:
    failed = Failure(kind="model", text="step 3: lower train.lr")
    programs = [SLEEP, SLEEP]
    programs[by] = tells(Event(failed=failed))
    with pytest.raises(ModelError, match=r"step 3: lower train\.lr"):
        watching(*programs).result()


def test_an_error_told_late_wins_over_the_silence_it_caused(watching: Watching) -> None:
    """Rank 0 breaks off without a word since rank 1 failed, whose word comes after."""
    failed = Failure(kind="system", text="No space left on device: /ckpt", number=28)
    slow = "import time; time.sleep(0.6)\n" + tells(Event(failed=failed))
    with pytest.raises(OSError, match="rank 1: No space left on device"):
        watching(BREAK, slow).result()


@pytest.mark.parametrize(
    ("programs", "told"),
    [
        ((DIE, SLEEP), r"rank 0 of 2 was killed by signal 9 \(by the kernel if memory"),
        ((BREAK, DIE), r"rank 1 of 2 was killed by signal 9"),
        ((BREAK, ""), r"rank 0 of 2 ended with code 1 \(ncclInternalError: went away\)"),
        ((SLEEP, BREAK), r"rank 1 of 2 ended with code 1 \(ncclInternalError"),
        (("", ""), r"rank 0 of 2 ended with code 0 \(it said nothing\)"),
    ],
)
def test_the_one_that_was_lost_first_is_blamed(
    watching: Watching,
    monkeypatch: pytest.MonkeyPatch,
    programs: tuple[str, str],
    told: str,
) -> None:
    if SLEEP in programs:  # waited for in vain
        monkeypatch.setattr(card_ranks, "END_WITHIN_S", 0.3)
    with pytest.raises(RankLost, match=told):
        watching(*programs).result()
