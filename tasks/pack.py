"""pack_windows: data sets → windows of token ids, held-out ones marked (healing.md §4)."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from cmfio.tokenizer import load_tokenizer
from conf.schema import Settings
from store.artifact import Artifact
from store.inputs import digests_in
from store.manifest import Manifest
from store.tables import write_table
from tasks.errors import InputError
from tasks.model_file import ModelPart, vocab_bytes
from tasks.packed import TABLE
from tasks.sources import DataSet, gather, kind_of, weigh
from tasks.stage import Runtime, stage
from tasks.windows import (
    HELD_OUT_EVERY,
    Cut,
    Window,
    cut_text,
    cut_windows,
    shuffled,
    take_records,
)

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

BYTES_A_TOKEN = 32  # no tokenizer we know packs more text into a token on average
RECORD_WINDOWS = 4  # a text file is cut into records of at most this many windows


class PackSettings(Settings):
    """What decides the windows: T, C, the split, and each set's name and cap."""

    window: int
    depth: int
    split: Literal["records", "windows"]
    names: tuple[str, ...]
    tokens: tuple[int, ...]


def _expected(
    settings: PackSettings,
    past: Manifest | None,
    *,
    sets: Sequence[DataSet],
    tokenizer: ModelPart | Artifact | None,
) -> Mapping[str, object]:
    """As many tokens as the same sets gave before; else the most that their caps allow."""
    tokens = sum(settings.tokens)
    if past is not None and past.inputs["sets"] == digests_in(sets, "sets"):
        tokens = min(tokens, int(past.numbers["tokens"]))
    windows = math.ceil(tokens / settings.window) + len(sets)  # each set has a last one
    held_out = math.ceil(windows / HELD_OUT_EVERY)
    return {"windows": windows, "held_out": held_out, "tokens": tokens}


@stage("pack_windows", version=1, expects=_expected)
def pack_windows(
    out: Path,
    settings: PackSettings,
    runtime: Runtime,
    *,
    sets: Sequence[DataSet],
    tokenizer: ModelPart | Artifact | None,
) -> Mapping[str, object]:
    """Windows of all sets as an Arrow table; numbers: windows, held out, tokens per set."""
    records = []
    with runtime.progress.task("packing", unit="tokens") as bar:
        for data, tokens in zip(sets, settings.tokens, strict=True):
            kept = _records(data, tokens, settings, tokenizer)
            _refuse_few(data.name, kept, settings)
            records.append(kept)
            bar.advance(sum(len(record) for record in kept))
    windows = cut_windows(records, Cut(settings.window, settings.depth, settings.split))
    if not windows:
        raise InputError(
            f"data sets {', '.join(settings.names)}: too short for a single window of "
            f"{settings.window} tokens; give more text or a smaller pack.window"
        )
    write_table(out / TABLE, _to_table(windows))
    return _numbers(windows, settings.names)


def _records(
    data: DataSet,
    tokens: int,
    settings: PackSettings,
    tokenizer: ModelPart | Artifact | None,
) -> list[tuple[int, ...]]:
    """The set's records, shuffled and capped (healing.md §4, steps 1 to 3).

    Whole text files are shuffled first, then cut into records, then those are shuffled: so
    only the files that fill the cap are ever tokenised.
    """
    if kind_of(data) == "ids":
        return take_records(_documents(data, tokens, _as_ids), tokens)
    if tokenizer is None:
        raise InputError(
            f"data set {data.name}: holds text and the model carries no tokenizer; give "
            "data with a column `ids`, or put the model's tokenizer.json into its file"
        )
    encoder = load_tokenizer(vocab_bytes(tokenizer), "the model")
    if data.kind == "table":
        return take_records(
            _documents(data, tokens, lambda t: [_encode(encoder, t).ids]), tokens
        )
    limit = RECORD_WINDOWS * settings.window

    def pieces(text: str | list[int]) -> list[list[int]]:
        encoding = _encode(encoder, text)
        ends = [end for _, end in encoding.offsets]
        return list(cut_text(encoding.ids, str(text), ends, limit))

    records = list(_documents(data, tokens, pieces))
    return take_records([records[place] for place in shuffled(len(records))], tokens)


def _as_ids(document: str | list[int]) -> list[list[int]]:
    assert isinstance(document, list)
    return [document]


def _encode(encoder: "Tokenizer", text: str | list[int]) -> "Encoding":
    assert isinstance(text, str)
    return encoder.encode(text, add_special_tokens=False)


def _documents(
    data: DataSet, tokens: int, records_of: Callable[[str | list[int]], list[list[int]]]
) -> Iterator[list[int]]:
    """Records of the documents in shuffled order, until they hold `tokens` ids."""
    sizes = weigh(data)
    if not any(sizes):
        raise InputError(
            f"data set {data.name}: has no records with anything in them; check its path, "
            "its columns, and that a column `split` says `train` somewhere"
        )
    waiting, left = shuffled(len(sizes)), tokens
    while waiting and left > 0:
        chosen = _prefix(waiting, sizes, left)
        waiting = waiting[len(chosen) :]
        for document in gather(data, chosen, left * BYTES_A_TOKEN):
            for record in records_of(document):
                yield record
                left -= len(record)
            if left <= 0:
                return


def _prefix(waiting: Sequence[int], sizes: Sequence[int], enough: int) -> list[int]:
    """The first places whose sizes reach `enough` (tokens are never more)."""
    total = 0
    for count, place in enumerate(waiting, start=1):
        total += sizes[place]
        if total >= enough:
            return list(waiting[:count])
    return list(waiting)


def _refuse_few(
    name: str, records: Sequence[Sequence[int]], settings: PackSettings
) -> None:
    if settings.split == "records" and len(records) < HELD_OUT_EVERY:
        raise InputError(
            f"data set {name}: has {len(records)} records, every tenth is held out, so at "
            f"least {HELD_OUT_EVERY} are needed; give more or shorter records, a smaller "
            f"pack.window (text is cut into records of {RECORD_WINDOWS} windows), or "
            "pack.split: windows"
        )


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


def needs_tokenizer(sets: Sequence[DataSet]) -> bool:
    """Whether any set holds text."""
    return any(kind_of(data) == "text" for data in sets)


def take_texts(data: DataSet, most_bytes: int) -> list[str]:
    """Texts of a set in its shuffled order until they hold `most_bytes`."""
    sizes = weigh(data)
    chosen = _prefix(shuffled(len(sizes)), sizes, most_bytes)
    return [str(text) for text in gather(data, chosen, most_bytes)]


def refuse_too_few(windows: Artifact, batch: int) -> None:
    """InputError unless there are 10 · batch windows, one held out, a full batch."""
    count, held_out = int(windows.numbers["windows"]), int(windows.numbers["held_out"])
    width = windows.manifest.settings["window"]
    if count < HELD_OUT_EVERY * batch or not held_out or count - held_out < batch:
        raise InputError(
            f"data: {count} windows of {width} tokens, {held_out} of them held out; a run "
            f"with train.batch {batch} needs {HELD_OUT_EVERY * batch} and one held out: "
            "give more data or tokens, or a smaller pack.window or train.batch"
        )


def steps_of_epochs(windows: Artifact, epochs: float, batch: int) -> int:
    """Training steps of so many epochs; incomplete batches are dropped (healing.md §8)."""
    batches = (int(windows.numbers["windows"]) - int(windows.numbers["held_out"])) // batch
    return max(1, math.ceil(epochs * batches))
