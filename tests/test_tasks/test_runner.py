"""A pass that workers make: the artifacts of one without, and what is said when they fail.

The workers here are threads; tests/test_scale has real clusters.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from conf.runner import Runner
from store.artifact import Artifact
from store.store import Store
from tasks.errors import RunnerError
from tasks.interrupt import Stopped
from tasks.model_file import open_model
from tasks.placed_trunk import placed_trunk
from tasks.shard_rows import ShardSettings
from tasks.stage import Runtime
from tasks.trunk_pass import run_trunk
from tasks.work import Order, Outcome, Told
from tests.builders import write_model
from tests.hands import DASK, Counted, Hands, in_threads
from tests.small_heal import WINDOW, Ground, packed, shard_states, small_model

TOKENS = 7 * WINDOW + 20  # eight windows in three shards
SETTINGS = ShardSettings(topk=8, dtype="f32", window=WINDOW, compile=False)
SHARDS = ["trunk_shard"] * 3


def run_pass(ground: Ground, root: Path, **how: object) -> tuple[Artifact, Runtime]:
    runtime = replace(Runtime(Store(root), progress=Counted()), **how)  # type: ignore[arg-type]  # fields by name
    windows = packed(ground, runtime, TOKENS)
    trunk = open_model(ground.student, runtime).trunk
    return run_trunk(trunk, windows, SETTINGS, 3, runtime), runtime


def arrays(root: Path) -> dict[str, bytes]:
    """Every file of every shard but what tells of the making: manifest and record."""
    told = {"manifest.json", "record.json"}
    files = (path for path in root.glob("trunk_shard/**/*") if path.is_file())
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in files
        if path.name not in told
    }


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    monkeypatch.setattr("tasks.runner.LOOK_EVERY_S", 0.01)
    return in_threads(monkeypatch)


def test_workers_make_the_same_bytes_under_the_same_keys(
    finished: Ground, tmp_path: Path, hands: Hands
) -> None:
    wanted, _ = run_pass(finished, tmp_path / "here")
    found, runtime = run_pass(finished, tmp_path / "there", runner=DASK)
    assert (found.key, found.content_digest) == (wanted.key, wanted.content_digest)
    assert arrays(tmp_path / "there") == arrays(tmp_path / "here")
    assert len(hands.orders) == 3
    # The run tells of them as made by itself, and counts each token once.
    assert shard_states(runtime) == ["ran"] * 3
    assert isinstance(runtime.progress, Counted)
    assert runtime.progress.bars["trunk pass"] == [TOKENS, 0]
    assert not [*(tmp_path / "there" / "locks").glob("seen-*")]


def test_a_cached_pass_asks_nobody_and_a_lost_shard_only_for_itself(
    finished: Ground, tmp_path: Path, hands: Hands
) -> None:
    first, runtime = run_pass(finished, tmp_path, runner=DASK)
    _, again = run_pass(finished, tmp_path, runner=DASK)
    assert (hands.opened, shard_states(again)) == (1, ["cached"] * 3)
    lost = runtime.store.parts(first)[1]
    runtime.store.set_aside(lost.stage, lost.key)
    hands.orders.clear()
    # One shard: a cluster started for it would do no better than this process.
    _, last = run_pass(finished, tmp_path, runner=DASK)
    assert (hands.orders, shard_states(last)) == ([], ["cached", "ran", "cached"])
    runtime.store.set_aside(lost.stage, lost.key)
    there = Runner("dask", None, "tcp://127.0.0.1:8786", 1)
    _, last = run_pass(finished, tmp_path, runner=there)
    assert len(hands.orders) == 1
    assert isinstance(last.progress, Counted)
    assert last.progress.bars["trunk pass"] == [3 * WINDOW, TOKENS - 3 * WINDOW]


def test_a_worker_loads_its_trunk_once_a_pass(
    finished: Ground, tmp_path: Path, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:

    loaded = []

    @contextmanager
    def counted(*args: object, **how: object) -> Iterator[object]:
        loaded.append(args)
        with original(*args, **how) as trunk:  # type: ignore[arg-type]  # passed on as they came
            yield trunk

    original = placed_trunk
    monkeypatch.setattr("tasks.pass_trunk.placed_trunk", counted)
    run_pass(finished, tmp_path, runner=DASK)
    assert (len(hands.orders), len(loaded)) == (3, 1)  # both threads are one worker
    run_pass(finished, tmp_path / "other", runner=DASK)
    assert len(loaded) == 2  # let go after the pass


def test_streamed_layers_are_read_once_for_many_shards(
    finished: Ground, tmp_path: Path, hands: Hands
) -> None:
    wanted, _ = run_pass(finished, tmp_path / "here")
    found, _ = run_pass(finished, tmp_path / "there", runner=DASK, placement="stream")
    assert found.content_digest == wanted.content_digest
    assert [order.work.title for order in hands.orders] == [
        "trunk pass, shards 1 to 2",
        "trunk pass, shard 3",
    ]


def spoilt(hands: Hands, **change: object) -> Hands:
    """Hands whose workers live on a site that differs."""
    submit = hands.submit

    def other(order: Order) -> "Future[Outcome]":
        return submit(replace(order, site=replace(order.site, **change)))  # type: ignore[arg-type]  # fields by name

    hands.submit = other  # type: ignore[method-assign]  # that is the point
    return hands


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"root": Path("/nowhere")}, r"worker .*does not see the store .*/nowhere; mount"),
        ({"versions": {"numpy": "1.0"}}, r"it has numpy [\d.]+ instead of 1.0; install"),
        ({"device": "cuda"}, "it has no card"),
    ],
)
def test_a_worker_that_shares_too_little_is_named(
    finished: Ground, tmp_path: Path, hands: Hands, change: dict[str, object], said: str
) -> None:
    spoilt(hands, **change)
    with pytest.raises(RunnerError, match=said):
        run_pass(finished, tmp_path, runner=DASK)


def test_another_model_under_the_same_path_is_refused(
    finished: Ground, tmp_path: Path, hands: Hands
) -> None:
    other = write_model(tmp_path / "other.cmf", small_model(seed=1))
    submit = hands.submit

    def swapped(order: Order) -> "Future[Outcome]":
        work = order.work
        part = replace(work.part, path=other)  # type: ignore[attr-defined]  # a ShardWork
        return submit(replace(order, work=replace(work, part=part)))  # type: ignore[type-var]  # a dataclass

    hands.submit = swapped  # type: ignore[method-assign]  # that is the point
    with pytest.raises(RunnerError, match=r"other\.cmf is another model here"):
        run_pass(finished, tmp_path / "store", runner=DASK)
    assert not [*(tmp_path / "store").glob("trunk_shard/*/record.json")]


def failing(
    hands: Hands, end: Callable[["Future[Outcome]"], object]
) -> Callable[[Order], "Future[Outcome]"]:
    """From the second order on, what a cluster says of a worker that it gave up."""
    submit = hands.submit

    def one_then_none(order: Order) -> "Future[Outcome]":
        if not order.place:
            return submit(order)
        while not [*order.site.root.glob("trunk_shard/*/record.json")]:
            time.sleep(0.01)  # the first is finished by then
        lost: Future[Outcome] = Future()
        end(lost)
        return lost

    return one_then_none


def cancelled(future: "Future[Outcome]") -> None:
    future.cancel()
    future.set_running_or_notify_cancel()


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (
            lambda f: f.set_exception(RuntimeError("died 4 times")),
            "gave it up: died 4 times",
        ),
        (cancelled, "the dask cluster is gone"),
    ],
)
def test_a_rerun_resumes_at_the_shard(
    finished: Ground,
    tmp_path: Path,
    hands: Hands,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[["Future[Outcome]"], object],
    said: str,
) -> None:
    whole = hands.submit
    monkeypatch.setattr(hands, "submit", failing(hands, end))
    with pytest.raises(RunnerError, match=said):
        run_pass(finished, tmp_path, runner=DASK)
    monkeypatch.setattr(hands, "submit", whole)
    _, runtime = run_pass(finished, tmp_path, runner=DASK)
    assert shard_states(runtime) == ["cached", "ran", "ran"]


def test_no_worker_for_long_is_an_error(
    finished: Ground, tmp_path: Path, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.runner.ALONE_FOR_S", 0.0)
    hands.count = 0
    with pytest.raises(RunnerError, match="has had no worker for"):
        run_pass(finished, tmp_path, runner=DASK)


def test_a_run_that_is_asked_to_stop_sends_no_more(
    finished: Ground, tmp_path: Path, hands: Hands
) -> None:
    runtime = Runtime(Store(tmp_path), runner=DASK)
    submit = hands.submit

    def stopping(order: Order) -> "Future[Outcome]":
        if order.place == 1:
            with runtime.stop.heeded():
                runtime.stop.ask(2)
        return submit(order)

    hands.submit = stopping  # type: ignore[method-assign]  # that is the point
    with pytest.raises(Stopped):
        run_pass(finished, tmp_path, runner=DASK, stop=runtime.stop)
    assert [order.place for order in hands.orders] == [0, 1]


@dataclass
class Retold(Hands):
    """The first order is begun on one worker, counted half, and begun again on another."""

    def submit(self, order: Order) -> "Future[Outcome]":
        if not order.place:
            self.heard += [Told(0, "a", done=0), Told(0, "a", done=80)]
            self.heard += [Told(0, "b", done=0), Told(0, "b", done=70)]
        return super().submit(order)


def test_an_order_begun_again_is_told_and_counted_once(
    finished: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.runner.LOOK_EVERY_S", 0.01)
    in_threads(monkeypatch, Retold())
    _, runtime = run_pass(finished, tmp_path, runner=DASK)
    assert isinstance(runtime.progress, Counted)
    assert runtime.progress.bars["trunk pass"] == [TOKENS, 0]
    said = "trunk pass, shard 1: its worker (a) is gone; begun again on b"
    assert said in runtime.progress.said
