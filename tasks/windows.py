"""Pure packing: records of token ids to windows (healing.md §4). No IO."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from conf.shuffle import Xorshift64, shuffle_in_place

HELD_OUT_EVERY = 10
MIN_EXTRA = 16


@dataclass(frozen=True)
class Window:
    """Up to T token ids, the set they come from, and where records start in them."""

    ids: tuple[int, ...]
    set_index: int
    is_held_out: bool
    record_starts: tuple[int, ...]


@dataclass(frozen=True)
class Cut:
    """T, C and what is held out: by tens, or all."""

    window: int
    depth: int
    split: Literal["records", "windows"]
    hold_all: bool = False


def shuffled(count: int) -> list[int]:
    """The reference's random order of `count` records, the same for every data set."""
    order = list(range(count))
    shuffle_in_place(order, Xorshift64())
    return order


def take_records(records: Iterable[Sequence[int]], tokens: int) -> list[tuple[int, ...]]:
    """The first records, cut off after `tokens` ids; empty ones are left out."""
    kept: list[tuple[int, ...]] = []
    left = tokens
    for record in records:
        if left <= 0:
            break
        if record:
            kept.append(tuple(record[:left]))
            left -= len(kept[-1])
    return kept


def pack(records: Iterable[Sequence[int]], cut: Cut, set_index: int) -> Iterator[Window]:
    """One stream cut into windows of T; the last stays if it has at least 16 + C tokens."""
    ids: list[int] = []
    starts: list[int] = []
    for record in records:
        starts.append(len(ids))
        ids.extend(record)
        while len(ids) >= cut.window:
            yield _window(ids[: cut.window], starts, set_index)
            ids = ids[cut.window :]
            starts = [start - cut.window for start in starts if start >= cut.window]
    if len(ids) >= MIN_EXTRA + cut.depth:
        yield _window(ids, starts, set_index)


def _window(ids: Sequence[int], starts: Sequence[int], set_index: int) -> Window:
    inside = tuple(start for start in starts if start < len(ids))
    return Window(tuple(ids), set_index, is_held_out=False, record_starts=inside)


def cut_windows(sets: Sequence[Sequence[tuple[int, ...]]], cut: Cut) -> list[Window]:
    """All windows of all sets, in the order given; `sets` holds each set's capped records.

    `windows`: index mod 10 = 9 over all windows is held out, the reference's rule.
    `records`: each set's tenth, twentieth … record is, and a repeated record goes where its
    first copy went, so no held-out text is trained on; a set's held-out windows follow its
    training ones. With `hold_all` every window is held out, under either.
    """
    if cut.split == "windows" or cut.hold_all:
        windows = [
            window
            for index, records in enumerate(sets)
            for window in pack(records, cut, index)
        ]
        return [
            replace(window, is_held_out=cut.hold_all or _is_tenth(index))
            for index, window in enumerate(windows)
        ]
    windows = []
    for index, (records, sides) in enumerate(zip(sets, _sides(sets), strict=True)):
        for is_held_out in (False, True):
            side = (
                record
                for record, is_out in zip(records, sides, strict=True)
                if is_out is is_held_out
            )
            windows += [replace(w, is_held_out=is_held_out) for w in pack(side, cut, index)]
    return windows


@dataclass(frozen=True)
class Copies:
    """Records of a set that repeat an earlier one of any set; `moved` changed sides."""

    found: int
    moved: int


def copies_in(sets: Sequence[Sequence[tuple[int, ...]]]) -> list[Copies]:
    """What split `records` finds repeated in each set, and moves to another side."""
    seen: set[tuple[int, ...]] = set()
    found = []
    for records, sides in zip(sets, _sides(sets), strict=True):
        repeated = moved = 0
        for place, record in enumerate(records):
            repeated += record in seen
            moved += sides[place] is not _is_tenth(place)
            seen.add(record)
        found.append(Copies(repeated, moved))
    return found


def _sides(sets: Sequence[Sequence[tuple[int, ...]]]) -> list[list[bool]]:
    """Whether each record is held out: every tenth, but a copy follows its first."""
    side_of: dict[tuple[int, ...], bool] = {}
    return [
        [side_of.setdefault(record, _is_tenth(place)) for place, record in enumerate(one)]
        for one in sets
    ]


def _is_tenth(place: int) -> bool:
    return place % HELD_OUT_EVERY == HELD_OUT_EVERY - 1


def cut_text(
    ids: Sequence[int], text: str, ends: Sequence[int], limit: int
) -> Iterator[list[int]]:
    """A text's ids in records of at most `limit`, cut at blank lines, else line ends.

    `ends[i]` is the place in `text` behind token i, as the tokenizer says.
    """
    start = 0
    while len(ids) - start > limit:
        stop = _last_break(text, ends, start, start + limit)
        yield list(ids[start:stop])
        start = stop
    if start < len(ids):
        yield list(ids[start:])


def _last_break(text: str, ends: Sequence[int], start: int, limit: int) -> int:
    """The last token border in (start, limit] behind a blank line, else behind a line."""
    at_line = 0
    for stop in range(limit, start, -1):
        head = text[max(0, ends[stop - 1] - 2) : ends[stop - 1]]
        if head == "\n\n":
            return stop
        if not at_line and head.endswith("\n"):
            at_line = stop
    return at_line or limit
