"""import_gguf: a GGUF file as a `.cmf`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cmfio.gguf import import_gguf as convert
from conf.base import Settings
from tasks.model_file import MODEL_NAME, steps_of
from tasks.stage import Runtime, stage


@dataclass(frozen=True)
class ForeignFile:
    """A file of another format, known by the digest of its bytes."""

    path: Path
    content_digest: str


class ImportSettings(Settings):
    """Nothing decides the import but the file."""


@stage("import_gguf", version=1)
def import_gguf(
    out: Path, settings: ImportSettings, runtime: Runtime, *, source: ForeignFile
) -> Mapping[str, object]:
    """`model.cmf` with the GGUF's weights as f16, llama's q and k rows un-permuted."""
    target = out / MODEL_NAME
    with runtime.progress.task(
        f"importing {source.path.name}", total=None, unit="tensors"
    ) as bar:
        convert(source.path, target, steps_of(bar))
    return {"bytes": target.stat().st_size}
