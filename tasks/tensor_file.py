"""Tensors in a file, as safetensors, whole or not at all."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from store.atomic import whole_file

if TYPE_CHECKING:
    import torch


def write_tensors(path: Path, tensors: "Mapping[str, torch.Tensor]") -> None:
    """The file is on disk when this returns; OSError if that cannot be."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with whole_file(path) as beside:
        try:
            save_file(dict(tensors), beside)
        except SafetensorError as error:
            raise _os_error(error, beside) from error


def _os_error(error: Exception, path: Path) -> Exception:
    """The system's own error inside safetensors' text, else the error itself."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    return error if number is None else OSError(int(number[1]), str(error), str(path))
