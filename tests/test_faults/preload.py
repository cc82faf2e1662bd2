"""What the processes of these tests start with, imported once; nothing is computed here."""

import importlib

for name in (
    "prefect.filesystems",
    "prefect.results",
    "prefect.serializers",
    "zarr",
    "zarr.codecs",
    "transformers.models.qwen3.modeling_qwen3",
    "cmfio.cli",
    "flows.cli",
    "flows.fold",
    "flows.heal",
    "flows.runtime",
    "flows.summary",
    "nets.fold",
    "nets.training",
    "tasks.checkpoint",
    "tasks.row_source",
):
    importlib.import_module(name)
