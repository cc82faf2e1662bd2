"""A training as JSON for the processes that train it together: names and paths, no code."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from conf.machine import Device
from conf.training import TrainSettings
from store.artifact import Artifact
from store.errors import ArtifactError
from store.opened import open_store
from store.store import Store
from tasks.drafts import DraftSource
from tasks.interrupt import StopFlag
from tasks.model_file import ModelPart, refuse_changed_model
from tasks.stage import Runtime
from tasks.training_run import Training


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ArtifactName(_Frozen):
    """An artifact of the job's store."""

    kind: Literal["artifact"] = "artifact"
    stage: str
    key: str


class PartName(_Frozen):
    """A part of a model file, by absolute path."""

    kind: Literal["part"] = "part"
    path: Path
    content_digest: str
    patch: Path | None


SourceName: TypeAlias = Annotated[ArtifactName | PartName, Field(discriminator="kind")]


class RankJob(_Frozen):
    """A training, and how each rank computes its share of it."""

    out: Path
    settings: TrainSettings
    windows: ArtifactName
    rows: ArtifactName
    trunk: PartName
    draft: SourceName
    init: SourceName | None
    save_every_s: float
    store: Path
    device: Device
    threads: int
    head_budget_bytes: int

    def runtime(self, stop: StopFlag) -> Runtime:
        """A rank's own runtime."""
        return Runtime(
            store=open_store(self.store),
            device=self.device,
            threads=self.threads,
            head_budget_bytes=self.head_budget_bytes,
            stop=stop,
        )

    def training(self, store: Store) -> Training:
        """The training; ArtifactError where the store does not hold what it reads."""
        return Training(
            out=self.out,
            settings=self.settings,
            windows=_artifact(self.windows, store),
            rows=_artifact(self.rows, store),
            trunk=_part(self.trunk),
            draft=_source(self.draft, store),
            init=None if self.init is None else _source(self.init, store),
            save_every_s=self.save_every_s,
        )


def job_of(training: Training, runtime: Runtime, *, ranks_here: int) -> RankJob:
    """The training as ranks read it; those of one machine divide its threads."""
    return RankJob(
        out=training.out.absolute(),
        settings=training.settings,
        windows=_artifact_name(training.windows),
        rows=_artifact_name(training.rows),
        trunk=_part_name(training.trunk),
        draft=_name(training.draft),
        init=None if training.init is None else _name(training.init),
        save_every_s=training.save_every_s,
        store=runtime.store.root,
        device=runtime.device,
        threads=max(1, runtime.threads // ranks_here),
        head_budget_bytes=runtime.head_budget_bytes,
    )


def _name(source: DraftSource) -> ArtifactName | PartName:
    return _artifact_name(source) if isinstance(source, Artifact) else _part_name(source)


def _artifact_name(artifact: Artifact) -> ArtifactName:
    return ArtifactName(stage=artifact.stage, key=artifact.key)


def _part_name(part: ModelPart) -> PartName:
    """InputError if it is another by now: ranks may be elsewhere, and don't look."""
    refuse_changed_model(part)
    patch = None if part.patch is None else part.patch.absolute()
    return PartName(
        path=part.path.absolute(), content_digest=part.content_digest, patch=patch
    )


def _source(name: ArtifactName | PartName, store: Store) -> DraftSource:
    return _artifact(name, store) if isinstance(name, ArtifactName) else _part(name)


def _part(name: PartName) -> ModelPart:
    return ModelPart(name.path, name.content_digest, name.patch)


def _artifact(name: ArtifactName, store: Store) -> Artifact:
    found = store.load(name.stage, name.key)
    if found is None:
        raise ArtifactError(
            f"{store.root}: no {name.stage}/{name.key} here; ranks on several machines "
            "need one store that all of them see under one path"
        )
    return found
