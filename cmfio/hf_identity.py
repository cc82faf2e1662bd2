"""What a checkpoint is, by content: sha256 of every tensor, each read once."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from cmfio.copying import CHUNK_BYTES, FileRange, part, read_range
from cmfio.errors import UnsupportedFeature
from cmfio.hf_checkpoint import Checkpoint
from cmfio.hf_heads import head_problem
from cmfio.identity import ModelDigests, combined
from cmfio.json_text import Json


def file_digests(
    checkpoint: Checkpoint, path: Path, advance: Callable[[int], None]
) -> dict[str, str]:
    """sha256 of every tensor in one of the checkpoint's files, by the file's names.

    `advance` hears how many bytes were read.
    """
    return {
        name: stored_sha256(checkpoint.tensors[name].stored, advance)
        for name in sorted(checkpoint.names_in(path))
    }


def stored_sha256(stored: FileRange, advance: Callable[[int], None]) -> str:
    """sha256 of a stretch of a file, read in pieces."""
    sha = hashlib.sha256()
    for start in range(0, stored.nbytes, CHUNK_BYTES):
        data = read_range(part(stored, start))
        sha.update(data)
        advance(len(data))
    return sha.hexdigest()


def checkpoint_digests(
    checkpoint: Checkpoint, stored: Mapping[str, str], side: Mapping[str, str]
) -> ModelDigests:
    """The digests of a checkpoint from those of its tensors and of its other files.

    Its trunk's is that of the container which `import_hf` makes of it. UnsupportedFeature
    where the draft has a head or an embedding of its own that isn't the trunk's.
    """
    for copy, trunk in checkpoint.copies.items():
        if stored[copy] != stored[checkpoint.sources[trunk]]:
            raise UnsupportedFeature(head_problem(str(checkpoint.path), copy, trunk))
    tensors = {
        name: stored[source] + ("swapped" if checkpoint.is_swapped(name) else "")
        for name, source in checkpoint.sources.items()
    }
    vocab = checkpoint.vocab
    sections = {} if vocab is None else {"vocab": hashlib.sha256(vocab).hexdigest()}
    every: list[Json] = [
        [
            name,
            tensor.dtype,
            list[Json](tensor.shape),
            stored[name],
            tensor.stored.path.name,
        ]
        for name, tensor in sorted(checkpoint.tensors.items())
    ]
    content: Json = [every, dict[str, Json](side)]
    arch = checkpoint.header.arch
    return combined(arch, checkpoint.entries, tensors, sections, content)
