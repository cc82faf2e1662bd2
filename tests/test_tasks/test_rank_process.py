"""What a rank's process tells when a training ends, and its exit code."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

from conf.base import Wiring
from conf.training import TrainSettings
from nets.errors import ModelError, Stopped
from nets.ranks import Ranks
from nets.training import FitResult
from tasks.interrupt import StopFlag
from tasks.rank_events import Event, Failure, Result
from tasks.rank_job import ArtifactName, PartName, RankJob
from tasks.stage import Runtime
from tasks.train_rank import Post, _work
from tasks.training_run import Listener, Training
from tests.small_heal import Ground


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def told(pipe: tuple[int, int]) -> list[Event]:
    os.set_blocking(pipe[0], False)
    try:
        return [Event.read(line) for line in os.read(pipe[0], 1 << 16).splitlines()]
    except BlockingIOError:
        return []


@pytest.fixture
def post(finished: Ground, tmp_path: Path) -> Iterator[Post]:
    """The only rank of a training of the finished heal's artifacts."""
    ground, out = finished, tmp_path
    names = {}
    for stage in ("pack_windows", "trunk_pass"):
        (folder,) = (
            path for path in (ground.store / stage).iterdir() if path.suffix != ".lock"
        )
        names[stage] = ArtifactName(stage=stage, key=folder.name)
    model = PartName(path=ground.student, content_digest="0" * 64, patch=None)
    job = RankJob(
        out=out,
        settings=TrainSettings(
            trainable="block",
            steps=4,
            dtype="f32",
            wiring=Wiring(hidden="raw", chain="raw"),
        ),
        windows=names["pack_windows"],
        rows=names["trunk_pass"],
        trunk=model,
        draft=model,
        init=None,
        save_every_s=60.0,
        store=ground.store,
        device="cpu",
        threads=1,
        head_budget_bytes=1 << 28,
    )
    yield Post(rank=0, size=1, meeting=out / "meeting", job=job)
    if dist.is_initialized():  # a rank that failed leaves its group to the process's end
        dist.destroy_process_group()


@pytest.mark.parametrize(
    "ends",
    [
        (Stopped("after step 2"), 0, [Event(stopped="after step 2")]),
        (
            ModelError("lower train.lr"),
            1,
            [Event(failed=Failure(kind="model", text="lower train.lr"))],
        ),
        (KeyError("a defect of ours"), 1, []),
    ],
)
def test_an_error_is_told_and_a_defect_leaves_its_trace_in_the_log(
    post: Post,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    pipe: tuple[int, int],
    ends: tuple[Exception, int, list[Event]],
) -> None:
    error, code, events = ends

    def train(*_: object) -> FitResult:
        raise error

    monkeypatch.setattr("tasks.training_run.run_training", train)
    assert _work(post, pipe[1], StopFlag()) == code
    assert told(pipe) == events
    assert type(error).__name__ in capfd.readouterr().err


def test_a_store_without_the_rows_is_told(
    post: Post, tmp_path: Path, pipe: tuple[int, int]
) -> None:
    job = post.job.model_copy(update={"store": tmp_path / "elsewhere"})
    assert _work(post.model_copy(update={"job": job}), pipe[1], StopFlag()) == 1
    (event,) = told(pipe)
    assert event.failed is not None
    assert event.failed.kind == "store"
    assert "ranks on several machines need one store" in event.failed.text


def test_what_was_told_on_the_way_comes_before_the_result(
    post: Post, monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    def train(_: Training, __: Runtime, listener: Listener, ranks: Ranks) -> FitResult:
        assert ranks.is_first
        listener.say("warming up")
        listener.resumed(4)
        return FitResult((), (), 2)

    monkeypatch.setattr("tasks.training_run.run_training", train)
    assert _work(post, pipe[1], StopFlag()) == 0
    assert told(pipe) == [
        Event(say="warming up"),
        Event(resumed=4),
        Event(result=Result(steps=(), evaluations=(), skipped=2)),
    ]
