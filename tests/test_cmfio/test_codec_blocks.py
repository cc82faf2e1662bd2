"""Blocks, threads and what is shown to kernels; values worked by hand."""

import threading
import time

import numpy as np
import pytest

from cmfio.codecs.base import BLOCK_ELEMENTS, F32, first_beyond
from cmfio.codecs.blocks import (
    BLOCK_GROUPS,
    block_height,
    in_blocks,
    pack_groups,
    unpack_groups,
)
from cmfio.codecs.registry import CODECS


@pytest.mark.parametrize(
    ("columns", "rows"),
    [(0, 524_288), (1, 524_288), (2, 262_144), (3, 174_762), (1 << 19, 1), (1 << 20, 1)],
)
def test_a_block_is_as_many_rows_as_fit_and_at_least_one(columns: int, rows: int) -> None:
    assert block_height(columns) == rows


@pytest.mark.parametrize(
    ("threads", "rows", "workers"), [(1, 9, 0), (4, 2, 0), (2, 3, 2), (2, 12, 2), (9, 6, 3)]
)
def test_blocks_are_worked_by_as_many_threads_as_asked_for(
    threads: int, rows: int, workers: int
) -> None:
    """Blocks of two rows; one block, or one thread, needs no pool."""
    seen, who = [], set()

    def work(top: int, bottom: int) -> None:
        time.sleep(0.02)  # so that a pool starts all the threads it may
        seen.append((top, bottom))
        who.add(threading.get_ident())

    in_blocks(work, rows, 2, threads)
    assert sorted(seen) == [(top, min(top + 2, rows)) for top in range(0, rows, 2)]
    mine = threading.get_ident()
    assert (mine in who, len(who - {mine})) == (workers == 0, workers)


def test_groups_are_shown_whole_and_the_last_filled_up_with_zeros() -> None:
    values = np.arange(1, 71, dtype=np.float32)
    values.flags.writeable = False
    shown: list[tuple[int, int, list[float]]] = []

    def look(first: int, last: int, groups: F32) -> None:
        assert not groups.flags.writeable
        assert groups.shape == (last - first, 32)
        shown.append((first, last, groups.ravel().tolist()))

    pack_groups(values, look, 1)
    first, filled = list(range(1, 65)), [*range(65, 71), *[0] * 26]
    assert shown == [(0, 2, first), (2, 3, filled)]


def test_groups_are_filled_to_the_end_of_the_values() -> None:
    values = np.zeros(70, np.float32)

    def fill(first: int, last: int, groups: F32) -> None:
        assert groups.shape == (last - first, 32)
        groups[:] = np.arange(32 * first, 32 * last).reshape(-1, 32)

    unpack_groups(values, fill, 1)
    assert values.tolist() == list(range(70))


def test_a_tensor_of_several_blocks_is_looked_through_to_its_end() -> None:
    values = np.zeros(BLOCK_ELEMENTS + 3, np.float32)
    assert first_beyond(values, 7) is None
    for place in (BLOCK_ELEMENTS + 2, BLOCK_ELEMENTS, BLOCK_ELEMENTS - 1, 0):
        for bad, why in ((7, "too large for it"), (-7, "too large for it")):
            values[place] = bad
            found = first_beyond(values, 7)
            assert found is not None
            assert (found.place, found.why) == (place, why)
        values[place] = np.nan
        found = first_beyond(values, 7)
        assert found is not None
        assert (found.place, found.why) == (place, "not finite")
    assert BLOCK_GROUPS * 32 == BLOCK_ELEMENTS


@pytest.mark.parametrize("name", CODECS)
def test_no_codec_can_write_to_the_values_it_is_given(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec, seen = CODECS[name], []
    packed = type(codec).packed

    def looked(self: object, values: F32, threads: int) -> object:
        seen.append(values.flags.writeable)
        return packed(codec, values, threads)

    monkeypatch.setattr(type(codec), "packed", looked)
    values = np.sign(np.arange(64, dtype=np.float32).reshape(2, 32) - 20.5)
    codec.encode(values)
    assert seen == [False]
    assert values.flags.writeable
