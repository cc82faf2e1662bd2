"""Arrow tables as memory-mapped IPC files."""

from pathlib import Path

import pyarrow as pa

from store.atomic import whole_file
from store.errors import ArtifactDamaged


def write_table(path: Path, table: pa.Table) -> None:
    """Write the table so that `path` holds all of it or does not exist."""
    with (
        whole_file(path) as beside,
        pa.OSFile(str(beside), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as out,
    ):
        out.write_table(table)


def read_table(path: Path) -> pa.Table:
    """The table, its columns mapped from the file; keep the file as long as the table."""
    try:
        return pa.ipc.open_file(pa.memory_map(str(path), "r")).read_all()
    except FileNotFoundError as error:
        raise ArtifactDamaged(path, "the table is missing") from error
    except pa.ArrowInvalid as error:
        raise ArtifactDamaged(path, f"no readable Arrow table ({error})") from error
