"""Text that a trunk wrote, as later stages read it."""

from collections.abc import Sequence

import pyarrow as pa

from store.artifact import Artifact
from store.tables import read_table
from tasks.stage import Runtime

RECORDS = "records.arrow"


def read_written(text: Artifact, runtime: Runtime) -> list[tuple[int, ...]]:
    """The token ids of every record of a `write_text`, in the order of their prompts."""
    return [
        tuple(ids)
        for shard in runtime.store.parts(text)
        for ids in read_table(shard.path / RECORDS).column("ids").to_pylist()
    ]


def to_table(records: Sequence[Sequence[int]]) -> pa.Table:
    """Records as a table with the one column `ids`."""
    return pa.table({"ids": pa.array(records, pa.list_(pa.uint32()))})
