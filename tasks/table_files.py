"""Rows of `.parquet`, `.arrow` and `.jsonl`; InputError for what can't be read."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

from tasks.data_files import ending
from tasks.errors import InputError

MAX_LINE_BYTES = 1 << 26
BATCH_ROWS = 1024


def columns_of(file: Path) -> Sequence[str]:
    """The names of a table's columns; of a `.jsonl` those of its first row."""
    if ending(file) == ".jsonl":
        first = next(_json_rows(file), None)
        return list(first or ())
    try:
        if ending(file) == ".parquet":
            from pyarrow import parquet  # late: 40 ms that a cached run has no use for

            return list(parquet.read_schema(file).names)
        with pa.memory_map(str(file)) as source:
            return list(pa.ipc.open_file(source).schema.names)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"data: {file}: is no readable {ending(file)[1:]} file ({_brief(error)}); "
            "write it again, or leave it out"
        ) from error


def rows_of(files: Iterable[Path]) -> Iterator[dict[str, object]]:
    """The rows of tables in file order, less what a column `split` keeps from training."""
    for file in files:
        rows = _json_rows(file) if ending(file) == ".jsonl" else _table_rows(file)
        for row in rows:
            if row.get("split", "train") == "train":
                yield row


def _json_rows(file: Path) -> Iterator[dict[str, object]]:
    with file.open("rb") as lines:
        number = 0
        while line := lines.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise InputError(
                    f"data: {file}: line {number:,} is longer than {MAX_LINE_BYTES:,} "
                    "bytes; part the record in several"
                )
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InputError(
                    f"data: {file}: line {number:,} is not JSON ({_of_line(error)}); each "
                    'line is one object: {"text": "…"} or {"ids": […]}'
                ) from error
            if not isinstance(row, dict):
                raise InputError(
                    f"data: {file}: line {number:,} is no JSON object; each is one, with "
                    "`ids` or `text`"
                )
            yield row


def _of_line(error: ValueError) -> str:
    """What is wrong in a line and at which character, without a line number of its own."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, at character {error.pos + 1}"
    return str(error)


def _table_rows(file: Path) -> Iterator[dict[str, object]]:
    done = 0
    try:
        for batch in _batches(file):
            try:
                yield from batch.to_pylist()
            except UnicodeDecodeError as error:
                row = done + _first_undecoded(batch)
                raise InputError(
                    f"data: {file}: row {row:,}, the first being 0, is not UTF-8: {error}"
                ) from error
            done += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"data: {file}: can't be read to its end ({_brief(error)}); write it again, or "
            "leave it out"
        ) from error


def _brief(error: Exception) -> str:
    """The first sentence of Arrow's words: what follows is of its insides."""
    return str(error).splitlines()[0].partition(". ")[0].rstrip(".")


def _first_undecoded(batch: pa.RecordBatch) -> int:
    """The place of the row for which `to_pylist` of a batch failed."""
    for place in range(len(batch)):
        try:
            batch.slice(place, 1).to_pylist()
        except UnicodeDecodeError:
            return place
    raise AssertionError("each row decodes alone")


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    columns = columns_of(file)
    wanted = [name for name in ("ids", "text", "split") if name in columns]
    if ending(file) == ".parquet":
        from pyarrow import parquet

        with parquet.ParquetFile(file) as table:
            yield from table.iter_batches(batch_size=BATCH_ROWS, columns=wanted)
    else:
        with pa.memory_map(str(file)) as source:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index).select(wanted)
