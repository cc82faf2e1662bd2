"""pack_windows: data sets → windows of token ids, held-out ones marked (healing.md §4)."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Literal

import pyarrow as pa

from conf.base import Settings
from store.artifact import Artifact
from store.inputs import digests_in
from store.manifest import Manifest
from store.tables import write_table
from tasks.errors import InputError
from tasks.model_file import ModelPart
from tasks.packed import TABLE
from tasks.planning import is_pending
from tasks.set_records import bytes_to_read, read_records
from tasks.sources import DataSet, kind_of
from tasks.stage import Runtime, stage
from tasks.windows import (
    HELD_OUT_EVERY,
    Cut,
    Window,
    copies_in,
    cut_windows,
    shuffled,
    take_records,
)
from tasks.written import read_written

RECORD_WINDOWS = 4  # a text file is cut into records of at most this many windows
SOON_READ_BYTES = 2 << 20  # read and tokenised in about a second


class PackSettings(Settings):
    """What decides the windows: T, C, what is held out, and each set's name and cap.

    `pad` is the id behind a short window's last, which no figure ever counts.
    """

    window: int
    depth: int
    split: Literal["records", "windows"]
    names: tuple[str, ...]
    tokens: tuple[int, ...]
    hold_all: bool = False
    pad: int = 0


def _expected(
    settings: PackSettings,
    past: Manifest | None,
    *,
    sets: Sequence[DataSet | Artifact],
    tokenizer: ModelPart | Artifact | None,
) -> Mapping[str, object]:
    """What small sets really give; of large ones what they gave before, else their caps.

    InputError for what `pack_windows` would refuse, as far as a plan may look for it.
    """
    records = [
        _soon_read(data, place, settings, tokenizer) for place, data in enumerate(sets)
    ]
    if None not in records:
        kept = [one for one in records if one is not None]
        return _numbers(_windows_of(kept, settings), settings.names)
    tokens = sum(settings.tokens)
    if past is not None and past.inputs["sets"] == digests_in(sets, "sets"):
        tokens = min(tokens, int(past.numbers["tokens"]))
    windows = math.ceil(tokens / settings.window) + len(sets)  # each set has a last one
    held_out = windows if settings.hold_all else math.ceil(windows / HELD_OUT_EVERY)
    return {"windows": windows, "held_out": held_out, "tokens": tokens}


def _soon_read(
    data: DataSet | Artifact,
    place: int,
    settings: PackSettings,
    tokenizer: ModelPart | Artifact | None,
) -> list[tuple[int, ...]] | None:
    """A set's records; None where they are not written yet, or take long to read."""
    if isinstance(data, Artifact):
        return None
    waits = kind_of(data) == "text" and is_pending(tokenizer)
    tokens = settings.tokens[place]
    if waits or bytes_to_read(data, tokens) > SOON_READ_BYTES:
        return None
    return _kept(data, place, settings, tokenizer)


def _kept(
    data: DataSet,
    place: int,
    settings: PackSettings,
    tokenizer: ModelPart | Artifact | None,
) -> list[tuple[int, ...]]:
    limit = RECORD_WINDOWS * settings.window
    kept = read_records(data, settings.tokens[place], limit, tokenizer)
    _refuse_few(settings.names[place], kept, settings)
    return kept


def _windows_of(
    records: Sequence[Sequence[tuple[int, ...]]], settings: PackSettings
) -> list[Window]:
    """The windows of all sets; InputError if there is none."""
    cut = Cut(settings.window, settings.depth, settings.split, settings.hold_all)
    windows = cut_windows(records, cut)
    if not windows:
        raise InputError(
            f"data sets {', '.join(settings.names)}: too short for a single window of "
            f"{settings.window} tokens; give more text or a smaller pack.window"
        )
    return windows


@stage("pack_windows", version=3, expects=_expected)
def pack_windows(
    out: Path,
    settings: PackSettings,
    runtime: Runtime,
    *,
    sets: Sequence[DataSet | Artifact],
    tokenizer: ModelPart | Artifact | None,
) -> Mapping[str, object]:
    """Windows of all sets as an Arrow table; numbers: windows, held out, tokens, copies.

    An artifact among the sets is text that `write_text` wrote.
    """
    records = []
    with runtime.progress.task("packing", unit="tokens") as bar:
        for place, data in enumerate(sets):
            if isinstance(data, Artifact):
                kept = _written_records(data, settings.tokens[place], runtime)
                _refuse_few(settings.names[place], kept, settings)
            else:
                kept = _kept(data, place, settings, tokenizer)
                others = data.left_out()
                if others is not None:
                    runtime.progress.say(f"data set {settings.names[place]}: {others}")
            records.append(kept)
            bar.advance(sum(len(record) for record in kept))
    windows = _windows_of(records, settings)
    write_table(out / TABLE, _to_table(windows))
    return {**_numbers(windows, settings.names), **_copies(records, settings, runtime)}


def _written_records(
    written: Artifact, tokens: int, runtime: Runtime
) -> list[tuple[int, ...]]:
    records = read_written(written, runtime)
    return take_records([records[place] for place in shuffled(len(records))], tokens)


def _refuse_few(
    name: str, records: Sequence[Sequence[int]], settings: PackSettings
) -> None:
    is_split = settings.split == "records" and not settings.hold_all
    if is_split and len(records) < HELD_OUT_EVERY:
        raise InputError(
            f"data set {name}: has {len(records)} records, every tenth is held out, so at "
            f"least {HELD_OUT_EVERY} are needed; give more or shorter records, a smaller "
            f"pack.window (text is cut into records of {RECORD_WINDOWS} windows), or "
            "pack.split: windows"
        )


def _copies(
    records: Sequence[Sequence[tuple[int, ...]]], settings: PackSettings, runtime: Runtime
) -> dict[str, object]:
    """Repeated records by set; says how many changed sides, so that none is on both."""
    if settings.split != "records" or settings.hold_all:
        return {}
    copies = copies_in(records)
    for name, of_set, one in zip(settings.names, records, copies, strict=True):
        if one.found:
            runtime.progress.say(
                f"data set {name}: {one.found:,} of {len(of_set):,} records are copies of "
                f"earlier ones; {one.moved:,} moved to the side of the split that their "
                "first copy is on"
            )
    return {
        "copies": [
            {"name": name, "found": one.found, "moved": one.moved}
            for name, one in zip(settings.names, copies, strict=True)
        ]
    }


def _to_table(windows: Sequence[Window]) -> pa.Table:
    return pa.table(
        {
            "ids": pa.array([w.ids for w in windows], pa.list_(pa.uint32())),
            "set": pa.array([w.set_index for w in windows], pa.uint16()),
            "held_out": pa.array([w.is_held_out for w in windows], pa.bool_()),
            "record_starts": pa.array(
                [w.record_starts for w in windows], pa.list_(pa.uint32())
            ),
        }
    )


def _numbers(windows: Sequence[Window], names: Sequence[str]) -> dict[str, object]:
    sets = []
    for index, name in enumerate(names):
        mine = [w for w in windows if w.set_index == index]
        sets.append(
            {
                "name": name,
                "windows": len(mine),
                "held_out": sum(w.is_held_out for w in mine),
                "tokens": sum(len(w.ids) for w in mine),
            }
        )
    return {
        "windows": len(windows),
        "held_out": sum(w.is_held_out for w in windows),
        "tokens": sum(len(w.ids) for w in windows),
        "sets": sets,
    }


def needs_tokenizer(sets: Sequence[DataSet | Artifact]) -> bool:
    """Whether any set holds text."""
    return any(isinstance(data, DataSet) and kind_of(data) == "text" for data in sets)


def refuse_too_few(windows: Artifact, batch: int) -> None:
    """InputError unless there are 10 · batch windows, one held out, a full batch.

    Where every window is held out one is enough, and `pack_windows` saw to that.
    """
    if windows.manifest.settings["hold_all"]:
        return
    count, held_out = int(windows.numbers["windows"]), int(windows.numbers["held_out"])
    width = windows.manifest.settings["window"]
    if count >= HELD_OUT_EVERY * batch and not held_out:
        raise InputError(
            f"data: none of {count} windows is held out: every tenth record should be, but "
            "copies go where their first went, and these records are too few or too much "
            "alike; give text that varies, or set pack.split: windows"
        )
    if count < HELD_OUT_EVERY * batch or count - held_out < batch:
        raise InputError(
            f"data: {count} windows of {width} tokens, {held_out} of them held out; a run "
            f"with train.batch {batch} needs {HELD_OUT_EVERY * batch} and one held out: "
            "give more data or tokens, or a smaller pack.window or train.batch"
        )


def steps_of_epochs(windows: Artifact, epochs: float, batch: int, kinds: int = 1) -> int:
    """Training steps of so many epochs of batches × kinds; incomplete batches are dropped.

    healing.md §8. The product is that of the number as written: 1.1 · 90 are 99.
    """
    batches = (int(windows.numbers["windows"]) - int(windows.numbers["held_out"])) // batch
    return max(1, math.ceil(Fraction(str(epochs)) * batches * kinds))
