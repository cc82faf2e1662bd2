from collections.abc import Sequence

import pytest

from tasks.windows import Cut, cut_text, cut_windows, pack, shuffled, take_records
from tests.oracles.order import MASK, reference_order


def test_order_is_the_references() -> None:
    assert shuffled(57) == reference_order(57)


def test_two_records_are_swapped_by_the_first_draw() -> None:
    # By hand: x = 0x9e3779b97f4a7c15; x ^= x<<13, x>>7, x<<17 is even, so j = 0.
    r = 0x9E3779B97F4A7C15
    r ^= (r << 13) & MASK
    r ^= r >> 7
    r ^= (r << 17) & MASK
    assert shuffled(2) == ([1, 0] if r % 2 == 0 else [0, 1])


def test_the_cap_cuts_the_last_record() -> None:
    assert take_records([[1, 2, 3], [], [4, 5], [6]], 4) == [(1, 2, 3), (4,)]


def test_a_cap_behind_all_records_keeps_them_whole() -> None:
    assert take_records([[1], [2, 3]], 99) == [(1,), (2, 3)]


def test_windows_run_over_record_borders_and_say_where_records_start() -> None:
    windows = list(pack([[1, 2, 3], [4, 5], [6, 7, 8]], Cut(4, 1, "windows"), 0))
    assert [w.ids for w in windows] == [(1, 2, 3, 4), (5, 6, 7, 8)]
    assert [w.record_starts for w in windows] == [(0, 3), (1,)]


@pytest.mark.parametrize(("left", "is_kept"), [(18, False), (19, True)])
def test_the_last_window_needs_16_and_c_tokens(left: int, *, is_kept: bool) -> None:
    windows = list(pack([list(range(32 + left))], Cut(32, 3, "windows"), 0))
    assert [len(w.ids) for w in windows] == [32, left] if is_kept else [32]


def test_split_windows_holds_out_every_tenth_over_all_sets() -> None:
    sets = [[tuple(range(32 * 6))], [tuple(range(32 * 15))]]
    windows = cut_windows(sets, Cut(32, 3, "windows"))
    assert [i for i, w in enumerate(windows) if w.is_held_out] == [9, 19]
    assert [w.set_index for w in windows] == [0] * 6 + [1] * 15


def record(mark: int) -> tuple[int, ...]:
    return (mark,) * 40


def ids_of(sets: Sequence[Sequence[tuple[int, ...]]], *, is_held_out: bool) -> set[int]:
    windows = cut_windows(sets, Cut(40, 3, "records"))
    return {i for w in windows if w.is_held_out is is_held_out for i in w.ids}


def test_split_records_holds_out_the_tenth_record_of_each_set() -> None:
    sets = [[record(i) for i in range(20)], [record(100 + i) for i in range(10)]]
    assert ids_of(sets, is_held_out=True) == {9, 19, 109}


def test_c9_a_repeated_record_follows_its_first_copy_into_either_side() -> None:
    first = [record(i) for i in range(10)]
    second = [record(9), *(record(100 + i) for i in range(8)), record(0)]
    assert ids_of([first, second], is_held_out=True) == {9}
    assert 0 not in ids_of([first, second], is_held_out=True)


def test_held_out_windows_of_a_set_lie_behind_its_training_ones() -> None:
    windows = cut_windows([[record(i) for i in range(20)]], Cut(40, 3, "records"))
    assert [w.is_held_out for w in windows] == [False] * 18 + [True] * 2


def cut(text: str, limit: int) -> list[str]:
    """Cuts with one token a character, so that ids spell the text."""
    ids = [ord(c) for c in text]
    ends = list(range(1, len(text) + 1))
    return ["".join(map(chr, piece)) for piece in cut_text(ids, text, ends, limit)]


def test_text_is_cut_behind_the_last_blank_line_that_fits() -> None:
    assert cut("aa\n\nbb\ncc\n\ndd", 8) == ["aa\n\n", "bb\ncc\n\n", "dd"]


def test_text_without_blank_lines_is_cut_at_a_line_end_else_anywhere() -> None:
    assert cut("aaa\nbbb\nccccccc", 5) == ["aaa\n", "bbb\n", "ccccc", "cc"]


def test_a_text_that_fits_stays_one_record() -> None:
    assert cut("aa\n\nbb", 6) == ["aa\n\nbb"]
