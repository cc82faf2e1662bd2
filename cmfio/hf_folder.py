"""What a checkpoint's folder holds beside weights, and what a copy of it takes along."""

from pathlib import Path

PROVENANCE = "mtp_heal.json"  # what was healed, in folders written here


def folder_files(folder: Path) -> list[Path]:
    """The files of a checkpoint, by name: all but hidden ones; sub-folders are no part."""
    return sorted(
        path for path in folder.iterdir() if path.is_file() and path.name[0] != "."
    )


def side_files(folder: Path, weights: list[Path]) -> list[Path]:
    """Those that hold no tensors of the model: config, tokenizer, licence and so on."""
    names = {path.name for path in weights}
    return [path for path in folder_files(folder) if path.name not in names]
