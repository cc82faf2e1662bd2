"""A model to read, whatever it is: a .cmf container or a Hugging Face folder."""

from pathlib import Path
from typing import TypeAlias

from cmfio.hf_checkpoint import Checkpoint, open_hf
from cmfio.opening import is_folder
from cmfio.reader import Container, open_container

AnyModel: TypeAlias = Container | Checkpoint


def open_weights(path: str | Path, patch: Path | None = None) -> AnyModel:
    """The model at `path`: a folder is a checkpoint, anything else a container.

    Files in the folder `patch` stand in for a checkpoint's of the same name. CmfError for
    what is broken or not understood.
    """
    given = Path(path)
    return open_hf(given, patch) if is_folder(given) else open_container(given)
