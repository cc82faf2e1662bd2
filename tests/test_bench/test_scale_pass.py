"""The simulated pass against hand-worked cases and a plain loop over small steps."""

import math
import random
from dataclasses import dataclass

import pytest

from bench.scale_pass import Link, PassWork, simulate


def test_one_worker_takes_the_sum_of_all_it_does() -> None:
    work = PassWork(
        shards=5,
        compute_s=3.0,
        shard_bytes=20.0,
        load_bytes=70.0,
        record_s=0.5,
        dispatch_s=0.25,
        model=Link(total=100.0, each=10.0),
        store=Link(total=100.0, each=40.0),
    )
    found = simulate(work, 1)
    assert found.load == 7.0
    assert found.compute == 15.0
    assert found.store == 2.5
    assert found.record == 2.5
    assert found.waiting == 1.25
    assert found.idle == 0.0
    assert found.seconds == 28.25


@pytest.mark.parametrize(
    ("shards", "workers", "rounds"), [(12, 4, 3), (13, 4, 4), (3, 8, 1)]
)
def test_without_limits_a_pass_is_as_many_rounds_as_shards_need(
    shards: int, workers: int, rounds: int
) -> None:
    assert simulate(PassWork(shards, 2.0), workers).seconds == 2.0 * rounds


def test_a_store_that_is_the_limit_takes_its_bytes_over_its_bandwidth() -> None:
    work = PassWork(64, 0.0, shard_bytes=10.0, store=Link(total=4.0))
    assert simulate(work, 16).seconds == pytest.approx(64 * 10 / 4)


def test_two_writers_at_once_get_half_each_and_a_worker_no_more_than_its_own() -> None:
    shared = PassWork(2, 1.0, shard_bytes=10.0, store=Link(total=10.0, each=10.0))
    own = PassWork(2, 1.0, shard_bytes=10.0, store=Link(total=100.0, each=10.0))
    assert simulate(shared, 2).seconds == 3.0
    assert simulate(own, 2).seconds == 2.0


def test_a_transfer_that_joins_another_slows_it_from_then_on() -> None:
    # Handed out at 1 and 2, no compute. Alone at 10 B/s until 2 (10 of 20 bytes), both at
    # 5 B/s until the first ends at 4; the second has 10 left, alone at 10 B/s: 5.
    work = PassWork(2, 0.0, shard_bytes=20.0, dispatch_s=1.0, store=Link(total=10.0))
    found = simulate(work, 2)
    assert found.seconds == 5.0
    assert found.store == (3.0 + 3.0) / 2
    assert found.waiting == (1.0 + 2.0) / 2
    assert found.idle == (1.0 + 0.0) / 2


def test_the_trunk_is_read_once_by_every_worker_that_gets_a_shard() -> None:
    work = PassWork(4, 1.0, load_bytes=100.0, model=Link(total=100.0))
    assert simulate(work, 4).seconds == 4 * 1 + 1  # all read at once
    assert simulate(work, 2).seconds == 2 * 1 + 2  # none reads again
    assert simulate(work, 100).seconds == 5  # 96 get nothing to do, and read nothing


def test_the_last_shard_leaves_the_others_idle() -> None:
    found = simulate(PassWork(5, 1.0), 4)
    assert found.seconds == 2.0
    assert found.idle == 3 / 4
    assert found.compute == 5 / 4


@pytest.mark.parametrize("seed", range(6))
def test_against_a_loop_over_small_steps(seed: int) -> None:
    draw = random.Random(seed)
    work = PassWork(
        shards=draw.randint(1, 12),
        compute_s=draw.randint(1, 30) / 10,
        shard_bytes=draw.randint(1, 40),
        load_bytes=draw.randint(1, 40),
        record_s=draw.randint(0, 5) / 10,
        dispatch_s=draw.randint(0, 3) / 10,
        model=Link(draw.randint(5, 60), draw.randint(5, 60)),
        store=Link(draw.randint(5, 60), draw.randint(5, 60)),
    )
    workers = draw.randint(1, 6)
    # The loop is late by a tick at most for each of a worker's changes of state.
    changes = 5 * (work.shards + 1)
    assert simulate(work, workers).seconds == pytest.approx(
        stepped(work, workers), abs=changes * TICK
    )


TICK = 0.005


@dataclass
class Worker:
    state: str = "ask"
    left: float = 0.0
    has_trunk: bool = False


AFTER = {"load": "compute", "compute": "store", "store": "record", "record": "ask"}


def stepped(work: PassWork, workers: int) -> float:
    """The same pass, time going on by a tick, each state counted down."""
    crew = [Worker() for _ in range(workers)]
    queue, free_at, now = work.shards, 0.0, 0.0
    while True:
        for one in crew:
            if one.state == "ask" and queue:
                queue -= 1
                free_at = max(now, free_at) + work.dispatch_s
                one.state, one.left = "handed", free_at - now
        if all(one.state == "ask" for one in crew):
            return now
        busy = [one.state for one in crew]
        for one in crew:
            one.left -= rate_of(work, one.state, busy) * TICK
            while one.left <= 1e-9 and one.state != "ask":
                go_on(work, one)
        now += TICK


def rate_of(work: PassWork, state: str, busy: list[str]) -> float:
    """Units of what is left that go in a second."""
    if state not in ("load", "store"):
        return 1.0
    link = work.model if state == "load" else work.store
    return min(link.each, link.total / busy.count(state))


def go_on(work: PassWork, one: Worker) -> None:
    """The worker's next state and what it has to do there."""
    if one.state == "handed":
        one.state = "compute" if one.has_trunk else "load"
        one.has_trunk = True
    else:
        one.state = AFTER[one.state]
    one.left = {
        "load": work.load_bytes,
        "compute": work.compute_s,
        "store": work.shard_bytes,
        "record": work.record_s,
        "ask": math.inf,
    }[one.state]
