import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.count import Count, duration
from tasks.progress import (
    FiledProgress,
    LineProgress,
    RichProgress,
    SilentProgress,
    make_progress,
)


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (7440, "2 h 04 min"),
    ],
)
def test_durations_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_line_says_how_much_how_fast_and_how_long() -> None:
    clock = Clock()
    count = Count("trunk pass", 393_216, "tokens", clock=clock)
    clock.now += 10
    count.add(32_768, {"loss": 1.23456})
    # 3,276.8 tokens/s; 360,448 left: 110 s.
    assert count.line() == (
        "trunk pass: 32,768 of 393,216 tokens (8 %), 3,277 tokens/s, "
        "1 min 50 s left, loss 1.235"
    )


def test_a_line_without_a_total_or_a_start() -> None:
    clock = Clock()
    count = Count("waiting", None, "", clock=clock)
    assert count.line() == "waiting: 0"
    clock.now += 2
    count.add(3, {})
    assert count.line() == "waiting: 3, 1.5 steps/s"


def test_a_step_says_its_seconds_and_the_tokens_that_go_by() -> None:
    clock = Clock()
    count = Count("training", 120, "steps", {"tokens": 4096.0}, clock)
    clock.now += 8
    count.add(10, {"loss": 0.81234, "lr": 1.95e-5})
    # 10 steps of 4,096 tokens in 8 s; 110 left at 0.8 s each.
    assert count.line() == (
        "training: 10 of 120 steps (8 %), 0.8 s/step, 5,120 tokens/s, 1 min 28 s left, "
        "loss 0.8123, lr 1.95e-05"
    )


def test_what_was_done_before_counts_as_done_and_not_as_speed() -> None:
    clock = Clock()
    count = Count("trunk pass", 1000, "tokens", clock=clock)
    clock.now += 1
    count.skip(600)
    assert count.line() == "trunk pass: 600 of 1,000 tokens (60 %)"
    clock.now += 9
    count.add(100, {})
    # 100 tokens in 10 s; 300 left: 30 s.
    assert count.line() == (
        "trunk pass: 700 of 1,000 tokens (70 %), 10 tokens/s, 30 s left"
    )


def test_a_log_has_a_line_every_few_seconds_and_one_at_the_end() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = LineProgress(stream, every_s=5, clock=clock)
    with progress.task("training", total=10, unit="steps") as bar:
        for _ in range(10):
            clock.now += 2
            bar.advance(loss=0.5)
    progress.say("done")
    lines = stream.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "training: 3 of 10 steps (30 %)",
        "training: 6 of 10 steps (60 %)",
        "training: 9 of 10 steps (90 %)",
        "training: 10 of 10 steps (100 %)",
        "done",
    ]


def test_only_a_task_of_no_known_length_that_counted_nothing_leaves_no_line() -> None:
    stream = io.StringIO()
    progress = LineProgress(stream)
    with progress.task("checking", unit="bytes"):
        pass
    assert stream.getvalue() == ""
    with progress.task("training", total=3, unit="steps"):
        pass
    with progress.task("reading", unit="bytes") as bar:
        bar.advance(5)
    lines = stream.getvalue().splitlines()
    assert [line.split(":")[0] for line in lines] == ["training", "reading"]


def test_the_end_of_a_task_is_one_line_though_a_line_is_due() -> None:
    clock, stream = Clock(), io.StringIO()
    with LineProgress(stream, every_s=5, clock=clock).task("a", total=2) as bar:
        for _ in range(2):
            clock.now += 9
            bar.advance()
    lines = [line.split(",")[0] for line in stream.getvalue().splitlines()]
    assert lines == ["a: 1 of 2 (50 %)", "a: 2 of 2 (100 %)"]


def test_a_task_that_is_long_silent_is_named_by_the_innermost() -> None:
    stream = io.StringIO()
    progress = LineProgress(stream, first_s=0.3)
    with progress.task("trunk pass", total=8, unit="tokens") as bar:
        with progress.task("loading the trunk"):
            _until(lambda: "loading" in stream.getvalue())
        _until(lambda: "pass" in stream.getvalue())
        bar.advance(8)
    lines = [line.split(",")[0] for line in stream.getvalue().splitlines()]
    assert lines == [
        "loading the trunk …",
        "trunk pass: 0 of 8 tokens (0 %)",
        "trunk pass: 8 of 8 tokens (100 %)",
    ]


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_task_that_fails_has_no_last_line() -> None:
    stream = io.StringIO()
    with pytest.raises(ValueError, match="x"), LineProgress(stream).task("a", total=1):
        raise ValueError("x")
    assert stream.getvalue() == ""


def test_silence_keeps_what_was_said() -> None:
    progress = SilentProgress()
    with progress.task("a", total=3, unit="steps") as bar:
        bar.advance(2, loss=1.0)
    progress.say("found")
    assert progress.said == ["found"]


def test_bars_may_nest(capsys: pytest.CaptureFixture[str]) -> None:
    progress = RichProgress()
    with progress.task("outer", total=2, unit="shards") as outer:
        for _ in range(2):
            with progress.task("inner", total=1) as inner:
                inner.advance(loss=0.5)
            outer.advance()
        progress.say("a line with [brackets]")
    captured = capsys.readouterr()
    assert "a line with [brackets]" in captured.err
    assert captured.out == ""


def test_the_file_for_onlookers(tmp_path: Path) -> None:
    inner = SilentProgress()
    path = tmp_path / "work" / "progress.json"
    progress = FiledProgress(inner, path, every_s=0)
    with progress.task("packing", total=4, unit="tokens") as bar:
        bar.advance(1, loss=0.5)
    said = json.loads(path.read_bytes())
    assert (said["task"], said["done"], said["total"], said["unit"]) == (
        "packing",
        1,
        4,
        "tokens",
    )
    assert said["values"] == {"loss": 0.5}
    assert said["line"].startswith("packing: 1 of 4 tokens (25 %)")
    progress.say("hello")
    assert inner.said == ["hello"]


def test_the_file_is_there_before_the_first_unit_is_done(tmp_path: Path) -> None:
    path = tmp_path / "work" / "progress.json"
    with FiledProgress(SilentProgress(), path).task("measuring", total=9, unit="windows"):
        assert json.loads(path.read_bytes())["line"] == "measuring: 0 of 9 windows (0 %)"


def test_a_file_that_cannot_be_written_does_not_stop_the_work(tmp_path: Path) -> None:
    progress = FiledProgress(
        SilentProgress(), tmp_path / "no" / "such" / "p.json", every_s=0
    )
    with progress.task("packing") as bar:
        bar.advance(1)


def test_the_kind_follows_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(make_progress(quiet=True), SilentProgress)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    assert isinstance(make_progress(), LineProgress)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert isinstance(make_progress(), RichProgress)


def test_the_pace_leaves_out_what_the_first_unit_paid_for() -> None:
    clock = Clock()
    count = Count("trunk pass", None, "calls", clock=clock)
    assert count.at_pace_s() is None
    clock.now += 30  # compiles
    count.add(2, {})
    assert count.at_pace_s() == 30  # nothing else is known
    clock.now += 6
    count.add(2, {})
    clock.now += 4
    count.add(3, {})
    assert count.at_pace_s() == 14  # five units in 10 s: seven take 14, not 40
    count.skip(100)  # found in the store
    assert count.at_pace_s() == 14


def test_a_slow_end_is_no_slower_pace_than_the_whole() -> None:
    clock = Clock()
    count = Count("x", clock=clock)
    clock.now += 1
    count.add(90, {})
    clock.now += 9
    count.add(10, {})
    assert count.at_pace_s() == 10  # not 90
