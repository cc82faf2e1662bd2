"""A model file as stages see it: a path, and its parts' digests, which alone enter keys."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cmfio.header import TensorEntry
from cmfio.identity import ModelDigests, model_digests
from cmfio.reader import Container, open_container
from store.artifact import Artifact
from tasks.errors import InputError
from tasks.planning import is_pending
from tasks.progress import Bar
from tasks.stage import Runtime

if TYPE_CHECKING:  # torch costs a second, a cached run never needs it
    import torch

MODEL_NAME = "model.cmf"
TOKENIZER_NAME = "tokenizer.json"
DRAFT_PREFIX = "model.mtp."


@dataclass(frozen=True)
class ModelPart:
    """What a stage reads of a model file: its digest is the key's, its path is not."""

    path: Path
    content_digest: str


@dataclass(frozen=True)
class ModelFile:
    """A `.cmf` model: `trunk` is what its forward reads, `draft` `model.mtp.*`."""

    path: Path
    digests: ModelDigests
    has_draft: bool

    @property
    def whole(self) -> ModelPart:
        """The file with everything in it."""
        return ModelPart(self.path, self.digests.content)

    @property
    def trunk(self) -> ModelPart:
        """The trunk's identity (healing.md §5): retraining the draft keeps it."""
        return ModelPart(self.path, self.digests.trunk)

    @property
    def draft(self) -> ModelPart:
        """The draft's own tensors."""
        return ModelPart(self.path, self.digests.draft)

    @property
    def vocab(self) -> ModelPart | None:
        """The tokenizer inside the file, if there is one."""
        digest = self.digests.vocab
        return ModelPart(self.path, digest) if digest else None


def open_model(path: str | Path, runtime: Runtime) -> ModelFile:
    """The model at `path`, every tensor's hash checked once and its digests remembered."""
    given = Path(path)
    if given.is_dir():
        raise InputError(
            f"{given}: is a folder; give a .cmf file (its first shard if it has several)"
        )
    with open_container(given) as container:
        digests = _digests(container, runtime)
        has_draft = any(name.startswith(DRAFT_PREFIX) for name in container.entries)
    return ModelFile(given, digests, has_draft)


def _digests(container: Container, runtime: Runtime) -> ModelDigests:
    memo = runtime.store.digests
    remembered = memo.recall(container.path, "model")
    if remembered is not None and container.is_single_file:
        return ModelDigests.from_json(remembered)
    total = sum(entry.nbytes for entry in container.entries.values())
    with runtime.progress.task(
        f"checking {container.path.name}", total=total, unit="bytes"
    ) as bar:
        digests = model_digests(container, steps_of(bar))
    memo.remember(container.path, "model", digests.to_json())
    return digests


def steps_of(bar: Bar) -> Callable[[int, int], None]:
    """A `(done, total)` callback that moves a bar on."""
    seen = 0

    def moved(done: int, _total: int) -> None:
        nonlocal seen
        bar.advance(done - seen)
        seen = done

    return moved


def model_in(artifact: Artifact, runtime: Runtime) -> ModelFile:
    """The model a stage wrote; in a plan it may have yet to be written."""
    if is_pending(artifact):
        return _model_to_come(artifact)
    return open_model(artifact.path / MODEL_NAME, runtime)


def _model_to_come(artifact: Artifact) -> ModelFile:
    """As a plan sees it: with a tokenizer and a draft, each known by a stand-in."""
    marker = artifact.content_digest
    digests = ModelDigests(
        tensors={},
        sections={"vocab": f"{marker}:vocab"},
        trunk=f"{marker}:trunk",
        draft=f"{marker}:draft",
        content=marker,
    )
    return ModelFile(artifact.path / MODEL_NAME, digests, has_draft=True)


def vocab_bytes(source: ModelPart | Artifact) -> bytes:
    """The `tokenizer.json` of a model file or of a tokenizer made by a stage."""
    if isinstance(source, Artifact):
        return (source.path / TOKENIZER_NAME).read_bytes()
    with open_container(source.path) as container:
        assert container.vocab is not None, "its digest was taken"
        return bytes(container.vocab)


@dataclass(frozen=True)
class Weights:
    """A container's tensors as `nets` wants them: shapes first, values when read."""

    shapes: Mapping[str, tuple[int, ...]]
    read: "Callable[[str], torch.Tensor]"


def weights_of(container: Container) -> Weights:
    """The tensors of an open container; `read` decodes one to f32."""
    import torch

    entries: Mapping[str, TensorEntry] = container.entries
    return Weights(
        {name: entry.shape for name, entry in entries.items()},
        lambda name: torch.from_numpy(container.tensor(name)),
    )


def torch_dtype(dtype: Literal["bf16", "f32"]) -> "torch.dtype":
    """The torch type of a compute type."""
    import torch

    return torch.bfloat16 if dtype == "bf16" else torch.float32
