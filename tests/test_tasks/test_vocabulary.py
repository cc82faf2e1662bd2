"""Coverage of a trimmed vocabulary, worked by hand on windows held in memory."""

from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt

from tasks.packed import Packed
from tasks.trunk_rows import TrunkRows
from tasks.vocabulary import trimmed_vocabularies

# Tokens 5 (3 times), 6 (twice), 2 (once), padding 0 behind; the last window is held out.
PACKED = Packed(
    ids=np.array([[5, 6, 5, 2], [5, 6, 0, 0], [6, 5, 9, 0]], np.uint32),
    length=np.array([4, 2, 3]),
    set_index=np.zeros(3, np.int64),
    is_held_out=np.array([False, False, True]),
    record=np.zeros((3, 4), np.int64),
    names=("own",),
)


class Rows:
    """The trunk's top 2 of the held-out window; its padding row must not count."""

    def read(self, name: str, window: int) -> npt.NDArray[np.generic]:
        assert window == 2
        if name == "topk_id":
            return np.array([[5, 6], [9, 2], [6, 9], [5, 5]], np.uint32)
        return np.array([[0.5, 0.3], [0.6, 0.2], [0.4, 0.4], [0.9, 0.0]], np.float32)


ROWS = cast(TrunkRows, Rows())


def test_b4_b5_coverage_by_hand() -> None:
    one, two, all_seen = trimmed_vocabularies(PACKED, ROWS, 10, (1, 2, 8))
    # {5}: its rows 0; mass .5 of 2.4. {5, 6}: rows 0 and 2, mass .5 + .3 + .4.
    assert (one["tokens"], one["rows"], one["own"]) == (1, 3, 1 / 3)
    assert np.isclose(one["mass"], 0.5 / 2.4)
    assert (two["tokens"], two["own"]) == (2, 2 / 3)
    assert np.isclose(two["mass"], 1.2 / 2.4)
    # 8 asked for, 3 seen in training text: 9 is not among them.
    assert (all_seen["tokens"], all_seen["own"]) == (3, 2 / 3)
    assert np.isclose(all_seen["mass"], 1.4 / 2.4)


def test_nothing_to_trim_or_to_trim_by() -> None:
    held = replace(PACKED, is_held_out=np.ones(3, bool))
    assert trimmed_vocabularies(held, ROWS, 10, (2,)) == []
    assert trimmed_vocabularies(PACKED, ROWS, 10, (10, 20)) == []
