"""A Hugging Face checkpoint in: its text model and draft, bytes untouched."""

from pathlib import Path

from cmfio.errors import UnsupportedFeature
from cmfio.hf_checkpoint import Checkpoint, open_hf
from cmfio.hf_folder import folder_files
from cmfio.hf_heads import head_problem
from cmfio.rewrite import copy_tensor
from cmfio.writer import Output, write_model


def import_hf(
    folder: Path,
    out: Path,
    output: Output = Output(),  # noqa: B008 — frozen
) -> list[Path]:
    """The files written: the checkpoint's tensors under canonical names.

    Beside the weights config.json is needed; tokenizer.json, chat template and special ids
    are taken where they are, vision parts stay behind. UnsupportedFeature names what makes
    a model another variant: its family, a setting, a tensor, a head, or how it is
    quantised. SameFile if `out` is a file that is in the folder already.
    """
    with open_hf(folder) as checkpoint:
        _refuse_own_copies(checkpoint)
        payloads = [copy_tensor(checkpoint, name) for name in checkpoint.entries]
        vocab = checkpoint.vocab
        sections = {} if vocab is None else {"vocab": vocab}
        sources = [*checkpoint.paths, *folder_files(folder), folder]
        return write_model(out, checkpoint.header, payloads, sections, output, sources)


def _refuse_own_copies(checkpoint: Checkpoint) -> None:
    """UnsupportedFeature where the draft has a head or embedding that isn't the trunk's."""
    for copy, trunk in checkpoint.copies.items():
        if not checkpoint.is_same(copy, trunk):
            raise UnsupportedFeature(head_problem(str(checkpoint.path), copy, trunk))
