"""Expected speed, worked by hand, and the tables of the page that tell a measure."""

from datetime import UTC, datetime

import pytest

from conf.schema import Cost
from tests.test_ui.pages import read_page
from tests.test_ui.sample import sample_report
from ui.contents import (
    Accepted,
    BestOf,
    DepthHeld,
    Measure,
    Place,
    Rate,
    Report,
    Sampling,
    Timing,
    Vocabulary,
)
from ui.report import render
from ui.speed import best_depth, expected_speed, speed_table

# Cost of a draft 0.1 of a plain step; it holds 0.8, 0.5, 0.3 given the steps before.
HELD = tuple(
    DepthHeld(depth=d, drafts_held=held, interval=(held, held), rows=100 if d else 0)
    for d, held in enumerate([0.0, 0.8, 1.2, 1.32])
)


def told(**changes: object) -> Report:
    measured = Measure(
        drafts_held=1.32,
        rows=321,
        by_depth=HELD,
        hold_rates=(Rate(step=1, rate=0.8, lo=0.7, hi=0.9, rows=321, running=0.8),),
        best_of=(BestOf(step=1, rows=321, top2=0.91, top3=0.93, top4=0.94),),
        sampling=(
            Sampling(
                temperature=0.7,
                steps=(
                    Accepted(step=1, rows=654, sampled=(0.61, 0.64),
                             sampled_interval=(0.55, 0.69), greedy=(0.58, 0.58),
                             greedy_interval=(0.5, 0.66)),
                ),
            ),
        ),
        by_position=(
            Place(first=0, last=15, hold_rates=(Rate(step=1, rate=None, rows=0),)),
        ),
        vocabulary=(Vocabulary(size=8192, tokens=8000, own=0.97, mass=0.955, rows=987),),
    )  # fmt: skip
    return sample_report(measures={"stale": measured}, **changes)


def test_g6_speed_by_hand() -> None:
    cost = Cost(verify=1.0, draft=0.1)
    speeds = [expected_speed(one.depth, one.drafts_held, cost) for one in HELD]
    assert speeds == pytest.approx([1.0, 1.8 / 1.1, 2.2 / 1.2, 2.32 / 1.3])
    assert best_depth(HELD, cost).depth == 2


def test_g6_a_round_that_costs_more_than_it_gives_is_not_drafted() -> None:
    assert best_depth(HELD, Cost(verify=2.0, draft=0.6)).depth == 0
    table = speed_table(told(cost=Cost(verify=2.0, draft=0.6)))
    assert table is not None
    assert "no depth of stale is faster" in table.said


def test_drafts_that_cost_nothing_are_best_as_deep_as_measured() -> None:
    assert best_depth(HELD, Cost(verify=1.0, draft=0.0)).depth == 3


def test_the_page_tells_it_all_with_rows() -> None:
    page = read_page(render(told(cost=Cost(verify=1.0, draft=0.1), depth=3)))
    for text in (
        *("fastest drafting 2 a round: 1.83", "61.0–64.0", "55.0–69.0", "58.0", "654"),
        *("91.0", "94.0", "0–15", "8,192", "8,000", "97.0", "95.50", "987"),
    ):
        assert text in page.text, text


def test_timed_costs_say_where_and_when() -> None:
    timing = Timing(
        quartiles={"verify": (1.25, 1.5), "draft": (0.125, 0.25)},
        seconds={"plain": 0.0125, "verify": 0.0166, "draft": 0.0019},
        rounds=9, depth=3, context=256, threads=2, machine="A Processor, 2 cores",
        device="cpu", dtype="bf16", when=datetime(2026, 3, 4, 5, 6, tzinfo=UTC),
    )  # fmt: skip
    cost = Cost(verify=1.33, draft=0.15)
    page = read_page(render(told(cost=cost, timing=timing, depth=3)))
    for text in (
        "verify 1.33 (1.25–1.50), draft 0.15 (0.12–0.25): median and quartiles of 9 rounds "
        "of 3 drafts behind 256 tokens, a plain step taking 12.5 ms",
        "timed on A Processor, 2 cores, cpu, 2 threads, bf16, 2026-03-04",
        "fastest drafting 2 a round: 1.35 times",  # 2.2 / 1.63
    ):
        assert text in page.text, text


def test_a_report_without_them_has_no_such_section() -> None:
    assert 'id="use"' not in render(sample_report())
