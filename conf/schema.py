"""Every setting of a heal, frozen and checked: one model a stage, joined in `RunConfig`."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

Depth = Annotated[int, Field(ge=1, le=16)]
Choice: TypeAlias = Literal["auto"] | bool


class Settings(BaseModel):
    """Base of all settings: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DataSpec(Settings):
    """One data set: a file, folder or glob, the most tokens taken from it, and its name."""

    path: str
    tokens: Annotated[int, Field(gt=0)] = 393_216
    name: str | None = None


class PackConfig(Settings):
    """Windows of `window` tokens; `split`: what is held out by tens (healing.md §4)."""

    window: Annotated[int, Field(ge=32)] = 2048
    split: Literal["records", "windows"] = "records"


class TrunkConfig(Settings):
    """The trunk pass: tokens kept a row, compute type, windows a cached shard.

    `compile` builds one layer's code for this machine first; auto: where that pays.
    """

    topk: Annotated[int, Field(ge=1)] = 64
    dtype: Literal["auto", "bf16", "f32"] = "auto"
    compile: Choice = "auto"
    shard_windows: Annotated[int, Field(ge=1)] = 16


class TrainConfig(Settings):
    """Draft training (healing.md §8). `steps`, when given, replaces `epochs`.

    From chain step 2 on, `on_path` trains only chains that a decode would run (fed with the
    trunk's own tokens), `anchors` only a share of the starts: the head is most of the cost
    where the vocabulary is large.
    """

    depth: Depth = 3
    trainable: Literal["auto", "block", "all"] = "auto"
    lr: Annotated[float, Field(gt=0)] = 2e-5
    epochs: Annotated[float, Field(gt=0)] = 1.0
    steps: Annotated[int, Field(ge=1)] | None = None
    batch: Annotated[int, Field(ge=1)] = 2
    eval_every: Annotated[int, Field(ge=1)] = 25
    eval_windows: Annotated[int, Field(ge=1)] | None = None
    patience: Annotated[int, Field(ge=1)] | None = 6
    select_by: Literal["walk", "starts"] = "walk"
    on_path: bool = False
    anchors: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: int = 0


class MeasureConfig(Settings):
    """The final measure: chain depth; all held-out windows are read."""

    depth: Depth = 3


class OutputSpec(Settings):
    """One file to write: `keep`, a dtype's name or `profile:NAME`, and where to copy it."""

    codec: str
    path: str


class RuntimeConfig(Settings):
    """Where and how a run computes; in no key: it may change rounding, never meaning."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    head_budget_mib: Annotated[int, Field(ge=1)] = 256
    store: str | None = None


class RunConfig(Settings):
    """A whole heal: the student, its data, and the settings of every stage."""

    student: str
    init: str | None = None
    start_from_last_layer: bool = False
    data: Annotated[tuple[DataSpec | str, ...], Field(min_length=1)]
    pack: PackConfig = PackConfig()
    trunk: TrunkConfig = TrunkConfig()
    train: TrainConfig = TrainConfig()
    measure: MeasureConfig = MeasureConfig()
    outputs: tuple[OutputSpec, ...] = ()
    runtime: RuntimeConfig = RuntimeConfig()

    @model_validator(mode="after")
    def _one_origin(self) -> "RunConfig":
        if self.start_from_last_layer and self.init is not None:
            raise ValueError(
                "init and start_from_last_layer both name a starting draft; set one of them"
            )
        if self.start_from_last_layer and self.train.trainable == "block":
            raise ValueError(
                "train.trainable is block, but a draft started from the last layer must be "
                "trained whole; set train.trainable to all or auto"
            )
        return self


class TrainSettings(Settings):
    """What `train_draft` is keyed by and what `nets.training.fit` reads: no `auto` left."""

    depth: Depth
    trainable: Literal["block", "all"]
    lr: float
    steps: int
    batch: int
    eval_every: int
    eval_windows: int | None
    patience: int | None
    select_by: Literal["walk", "starts"]
    on_path: bool
    anchors: float | None
    seed: int
    dtype: Literal["bf16", "f32"]
