"""A model file as stages see it: a path, and its parts' digests, which alone enter keys."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import JsonValue

from cmfio.hf_checkpoint import Checkpoint
from cmfio.hf_folder import side_files
from cmfio.hf_identity import checkpoint_digests, file_digests
from cmfio.identity import ModelDigests, model_digests
from cmfio.models import AnyModel, open_weights
from cmfio.reader import Container
from store.artifact import Artifact
from tasks.planning import is_pending
from tasks.progress import Bar
from tasks.seen import (
    Seen,
    look_at,
    look_at_container,
    look_at_model,
    look_at_open,
    refuse_changed,
)
from tasks.stage import Runtime

if TYPE_CHECKING:  # torch costs a second, a cached run never needs it
    import torch

MODEL_NAME = "model.cmf"
TOKENIZER_NAME = "tokenizer.json"
DRAFT_PREFIX = "model.mtp."
TENSORS = "tensors"  # a remembered fact of a weight file: its tensors' sha256

Layout: TypeAlias = Literal["cmf", "hf"]


@dataclass(frozen=True)
class ModelPart:
    """What a stage reads of a model file: its digest is the key's, its path is not.

    For a checkpoint `path` is its folder, and files in `patch` stand in for those in it.
    `seen` are the files at `path` as they were when the digest was taken; none of a model
    in the store, or where another machine is to read it.
    """

    path: Path
    content_digest: str
    patch: Path | None = None
    seen: tuple[Seen, ...] = field(default=(), compare=False)

    def elsewhere(self) -> "ModelPart":
        """For another process: by a path that means something in another folder."""
        return replace(self, path=self.path.absolute(), seen=())


@dataclass(frozen=True)
class DraftFacts:
    """What a model's draft is like: the names it has in its file, and what it lacks.

    `healed` is the MTP layer that is the draft, `kept` further ones, left as they are.
    Without `has_norm` the head reads the block's raw output; `is_mentioned` where the
    header or config.json says that there is a draft.
    """

    family: str
    healed: str
    kept: tuple[str, ...] = ()
    has_norm: bool = True
    is_mentioned: bool = True


@dataclass(frozen=True)
class ModelFile:
    """A model: a `.cmf`, or a Hugging Face folder (`layout`).

    `trunk` is what its forward reads, `draft` `model.mtp.*`, under whatever names. `ends`
    are the ids that end a sequence, as far as it names them and has a row for them (a plan
    that only heard of a model knows none), `seen` as of a part.
    """

    path: Path
    digests: ModelDigests
    layout: Layout = "cmf"
    head: DraftFacts | None = None
    patch: Path | None = None
    ends: tuple[int, ...] = ()
    seen: tuple[Seen, ...] = field(default=(), compare=False)

    @property
    def has_draft(self) -> bool:
        """Whether it carries an MTP draft."""
        return self.head is not None

    @property
    def whole(self) -> ModelPart:
        """The file with everything in it."""
        return self._part(self.digests.content)

    @property
    def trunk(self) -> ModelPart:
        """The trunk's identity (healing.md §5): retraining the draft keeps it."""
        return self._part(self.digests.trunk)

    @property
    def draft(self) -> ModelPart:
        """The draft's own tensors."""
        return self._part(self.digests.draft)

    @property
    def vocab(self) -> ModelPart | None:
        """The tokenizer inside the file, if there is one."""
        return self._part(self.digests.vocab) if self.digests.vocab else None

    def elsewhere(self) -> "ModelFile":
        """For another process, as a part is."""
        return replace(self, path=self.path.absolute(), seen=())

    def _part(self, digest: str) -> ModelPart:
        return ModelPart(self.path, digest, self.patch, self.seen)


def open_model(path: str | Path, runtime: Runtime, patch: Path | None = None) -> ModelFile:
    """The model at `path`, a `.cmf` or a checkpoint's folder; digests are remembered.

    Every tensor is read once. Files in `patch` stand in for a checkpoint's. InputError if
    a file changes meanwhile.
    """
    given = Path(path)
    seen = look_at_model(given)
    with open_weights(given, patch) as model:
        layout: Layout = "hf" if isinstance(model, Checkpoint) else "cmf"
        if isinstance(model, Checkpoint):
            digests = _checkpoint_digests(model, patch, runtime)
        else:
            seen = look_at_container(model)
            digests = _digests(model, runtime)
        found = ModelFile(given, digests, layout, _facts(model), patch, _ends(model), seen)
    refuse_changed_model(found)
    return found


def refuse_changed_model(model: ModelPart | ModelFile) -> None:
    """InputError unless the files at its path are those that its digests were taken of."""
    if model.seen:
        refuse_changed(model.seen, look_at_model(model.path, model.seen))


@contextmanager
def open_part(part: ModelPart) -> Iterator[AnyModel]:
    """The file behind a part of a model; InputError if it is another by now or after."""
    with open_weights(part.path, part.patch) as model:
        refuse_changed_model(part)
        yield model
        refuse_changed_model(part)


def _facts(model: AnyModel) -> DraftFacts | None:
    """The draft's names; None without one."""
    if not any(name.startswith(DRAFT_PREFIX) for name in model.entries):
        return None
    has_norm = f"{DRAFT_PREFIX}norm.weight" in model.entries
    more = {"has_norm": has_norm, "is_mentioned": model.header.arch.mtp is not None}
    if isinstance(model, Checkpoint) and model.head is not None:
        head = model.head
        return DraftFacts(head.row.title, head.healed, head.kept, **more)
    layer = re.compile(re.escape(DRAFT_PREFIX) + r"layers\.\d+")
    found = {m[0] for name in model.entries if (m := layer.match(name))}
    first = f"{DRAFT_PREFIX}layers.0"
    return DraftFacts("canonical", first, tuple(sorted(found - {first})), **more)


def _ends(model: AnyModel) -> tuple[int, ...]:
    special = model.header.tokenizer_config
    named = () if special is None else special.eos_token_ids
    return tuple(one for one in named if one < model.header.arch.vocab_size)


def _digests(container: Container, runtime: Runtime) -> ModelDigests:
    memo = runtime.store.digests
    remembered = memo.recall(container.path, "model")
    if remembered is not None and container.is_single_file:
        return ModelDigests.from_json(remembered)
    opened = look_at_container(container)
    total = sum(entry.nbytes for entry in container.entries.values())
    with runtime.progress.task(
        f"checking {container.path.name}", total=total, unit="bytes"
    ) as bar:
        digests = model_digests(container, steps_of(bar))
    refuse_changed(opened, look_at(container.paths))  # else it is remembered of another
    memo.remember(container.path, "model", digests.to_json())
    return digests


def _checkpoint_digests(
    checkpoint: Checkpoint, patch: Path | None, runtime: Runtime
) -> ModelDigests:
    memo = runtime.store.digests
    stored = checkpoint_tensors(checkpoint, runtime)
    folders = [checkpoint.path] if patch is None else [checkpoint.path, patch]
    side = {
        path.name: memo.sha256(path)
        for folder in folders
        for path in side_files(folder, checkpoint.weight_files)
    }
    return checkpoint_digests(checkpoint, stored, side)


def checkpoint_tensors(checkpoint: Checkpoint, runtime: Runtime) -> dict[str, str]:
    """sha256 of every tensor by its file's name for it; files that changed are read."""
    memo = runtime.store.digests
    found: dict[str, str] = {}
    missing = []
    for path in checkpoint.weight_files:
        known = memo.recall(path, TENSORS)
        if isinstance(known, dict) and checkpoint.names_in(path) <= known.keys():
            found |= {name: str(sha) for name, sha in known.items()}
        else:
            missing.append(path)
    if not missing:
        return found
    total = sum(checkpoint.bytes_in(path) for path in missing)
    title = f"checking {checkpoint.path.name}"
    with runtime.progress.task(title, total=total, unit="bytes") as bar:
        for path in missing:
            one = checkpoint.tensors[min(checkpoint.names_in(path))]
            opened = look_at_open(path, one.stored.handle)
            own = file_digests(checkpoint, path, bar.advance)
            refuse_changed([opened], look_at([path]))  # else it is remembered of another
            memo.remember(path, TENSORS, dict[str, JsonValue](own))
            found |= own
    return found


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
    return replace(open_model(artifact.path / MODEL_NAME, runtime), seen=())


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
    head = DraftFacts("canonical", f"{DRAFT_PREFIX}layers.0")
    return ModelFile(artifact.path / MODEL_NAME, digests, head=head)


def vocab_bytes(source: ModelPart | Artifact) -> bytes:
    """The `tokenizer.json` of a model file or of a tokenizer made by a stage."""
    if isinstance(source, Artifact):
        return (source.path / TOKENIZER_NAME).read_bytes()
    with open_part(source) as model:
        assert model.vocab is not None, "its digest was taken"
        return bytes(model.vocab)


@dataclass(frozen=True)
class Weights:
    """A model's tensors as `nets` wants them: shapes first, values when read."""

    shapes: Mapping[str, tuple[int, ...]]
    read: "Callable[[str], torch.Tensor]"


def weights_of(container: AnyModel) -> Weights:
    """The tensors of an open model; `read` decodes one to f32."""
    import torch

    return Weights(container.shapes, lambda name: torch.from_numpy(container.tensor(name)))


def torch_dtype(dtype: Literal["bf16", "f32"]) -> "torch.dtype":
    """The torch type of a compute type."""
    import torch

    return torch.bfloat16 if dtype == "bf16" else torch.float32
