"""Prefect's side of a stage: its result record, inside a flow run and outside one."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from store.atomic import flush
from store.completion import make_read_only
from store.errors import ArtifactDamaged
from store.record import Reference, read_reference, record_name
from store.store import Store

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State as RunState


def in_flow_run() -> bool:
    """Whether this thread is inside a Prefect flow run; without the import it can't be."""
    context = sys.modules.get("prefect.context")
    return context is not None and context.FlowRunContext.get() is not None


def close_record(store: Store, reference: Reference) -> None:
    """Write the record unless Prefect has, and make it lasting.

    Prefect's transaction only logs that it could not write; our own attempt says why.
    """
    record = store.record_path(reference.stage, reference.key)
    try:
        written = read_reference(record) == reference
    except ArtifactDamaged:
        written = False
    if not written:
        _write_record(store.root, reference)
    flush(record)
    flush(record.parent)
    make_read_only(record)


def _write_record(root: Path, reference: Reference) -> None:
    """The record a Prefect task would write, byte for byte, without any server."""
    from prefect.filesystems import LocalFileSystem
    from prefect.results import ResultStore
    from prefect.serializers import JSONSerializer

    storage = LocalFileSystem(basepath=str(root))
    results = ResultStore(result_storage=storage, serializer=JSONSerializer())
    key = record_name(reference.stage, reference.key)
    try:
        results.write(reference.model_dump(), key=key)
    except BaseException:
        (root / key).unlink(missing_ok=True)  # it is not written whole or not at all
        raise


def drop_failure_record(_task: object, _run: object, state: "RunState") -> None:
    """Delete the file Prefect writes of a failed task's exception: no part of the store."""
    path = getattr(getattr(state.data, "metadata", state.data), "storage_key", None)
    if isinstance(path, str):
        Path(path).unlink(missing_ok=True)
