"""Every setting of a heal, frozen and checked: one model a stage, joined in `RunConfig`."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from conf.base import AtLeastOne, Depth, Number, PathText, Seed, Settings, Whole, Wiring
from conf.runner import RunnerKind, fault_of
from conf.training import TrainConfig

Choice: TypeAlias = Literal["auto"] | bool
Placement: TypeAlias = Literal["auto", "resident", "stream"]
StartKind: TypeAlias = Literal["own", "init", "fresh"]
MOST_WORKERS = 1024  # more is a slip of the hand


class DataSpec(Settings):
    """One data set: a file, folder or glob, the most tokens taken from it, and its name.

    More `tokens` make a pass longer and a training wider; reports tell sets apart by name.
    """

    path: PathText
    tokens: Annotated[Whole, Field(gt=0)] = 393_216
    name: str | None = None


class WriteConfig(Settings):
    """Text the trunk writes itself, `tokens` ids in all, prompts included.

    A record is a prompt (the first `prompt_tokens` ids of a record of `prompts`, null: the
    whole record) and at most `length` tokens behind it. `temperature` 0 is greedy; above
    it, drawn by `seed`: as those sample who will use the model. `batch` records are written
    at once, as memory allows.
    """

    prompts: DataSpec | PathText
    prompt_tokens: AtLeastOne | None = 32
    tokens: Annotated[Whole, Field(gt=0)] = 393_216
    length: AtLeastOne = 512
    temperature: Annotated[Number, Field(ge=0)] = 0.0
    seed: Seed = 0
    batch: AtLeastOne = 16


class WriteSpec(Settings):
    """One data set that the trunk writes, where users' text is not at hand; its name."""

    write: WriteConfig
    name: str | None = None


def _kind_of_set(given: object) -> Literal["DataSpec", "WriteSpec", "str"]:
    """Which of the three a data set is written as, so that one of them explains a fault."""
    is_written = isinstance(given, WriteSpec)
    if is_written or (isinstance(given, Mapping) and "write" in given):
        return "WriteSpec"
    return "DataSpec" if isinstance(given, DataSpec | Mapping) else "str"


SetSpec: TypeAlias = Annotated[
    Annotated[DataSpec, Tag("DataSpec")]
    | Annotated[WriteSpec, Tag("WriteSpec")]
    | Annotated[PathText, Tag("str")],
    Discriminator(_kind_of_set),
]


class PackConfig(Settings):
    """Windows of `window` tokens: as long as a runtime's contexts, or as memory allows.

    `split`: what is held out by tens (healing.md §4), `windows` where records are few.
    `isolate` keeps the records in one window apart, in trunk and draft alike: for many
    short ones. `hold_all` holds out every window: a pure measure, of text no training read.
    """

    window: Annotated[Whole, Field(ge=32)] = 2048
    split: Literal["records", "windows"] = "records"
    isolate: bool = False
    hold_all: bool = False


class TrunkConfig(Settings):
    """The trunk pass: tokens kept a row, compute type, windows a cached shard.

    `topk` trades the store's size for how much of the trunk's choice a draft is shown,
    `dtype` time for rounding, `shard_windows` files for what a kill loses. `compile` builds
    one layer's code for this machine first; auto: where that pays.
    """

    topk: AtLeastOne = 64
    dtype: Literal["auto", "bf16", "f32"] = "auto"
    compile: Choice = "auto"
    shard_windows: AtLeastOne = 16


class ProbeConfig(Settings):
    """How the wiring of a shipped draft is found: measured on a few windows, or given.

    More `windows` where few leave it open; a `wiring` for a draft of another runtime.
    """

    windows: Annotated[Whole, Field(ge=2)] = 4
    wiring: Literal["auto"] | Wiring = "auto"


class Cost(Settings):
    """What verifying a round and drafting one token cost, in steps of plain decoding.

    Both hang on the runtime that will decode: give what it takes.
    """

    verify: Annotated[Number, Field(gt=0)] = 1.0
    draft: Annotated[Number, Field(ge=0)] = 0.06


class MeasureConfig(Settings):
    """The final measure: all held-out windows are read, chains of `depth` drafts a round.

    Sampling acceptance is told at each of `temperatures`; expected speed follows from
    `cost`, which may be `timed` on the machine the heal runs on.
    """

    depth: Depth = 3
    temperatures: tuple[Annotated[Number, Field(ge=0, le=10)], ...] = (0.0, 0.7, 1.0)
    cost: Cost | Literal["timed"] = Cost()


class TapsConfig(Settings):
    """Trunk layers, counted from 0, whose output rows on held-out windows are kept.

    For a draft built elsewhere that reads rows from inside the trunk.
    """

    layers: Annotated[tuple[Annotated[Whole, Field(ge=0)], ...], Field(min_length=1)]


class OutputSpec(Settings):
    """One file to write: `keep`, a dtype's name or `profile:NAME`, and where to copy it."""

    codec: str
    path: PathText


class RuntimeConfig(Settings):
    """Where and how a run computes; in no key: it may change rounding, never meaning.

    `device` and `threads`, auto: a card if there is one, the cores that are idle.
    `head_budget_mib`: what logits may take of memory at once, more for a large card.
    `placement`: the trunk is held whole, or read layer by layer; auto: by the memory free.
    `cards` of this machine train a draft together; the batch stays what it is.
    `runner` makes shards and outputs: this process, or `workers` of a `cluster`, else of
    one started here. `gpu_limit` names the global concurrency limit of Prefect's that a
    stage takes a slot of while it computes in a flow run. `locks`: flock on one machine, or
    leases where several share the store's folder. `store` may be s3://bucket/prefix; the
    copies this machine needs then lie in `scratch`.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: AtLeastOne | Literal["auto"] = "auto"
    cards: AtLeastOne | Literal["all"] = 1
    head_budget_mib: AtLeastOne = 256
    placement: Placement = "auto"
    runner: RunnerKind = "threads"
    workers: Annotated[AtLeastOne, Field(le=MOST_WORKERS)] | None = None
    cluster: str | None = None
    gpu_limit: Annotated[str, Field(min_length=1)] | None = None
    store: PathText | None = None
    locks: Literal["flock", "lease"] = "flock"
    scratch: PathText | None = None

    def contradictions(self) -> Iterator[str]:
        """What is said of workers that this runner does not have."""
        fault = fault_of(self.runner, self.workers, self.cluster)
        if fault is not None:
            yield fault


class RunConfig(Settings):
    """A whole heal: the student, its data, and the settings of every stage.

    The draft that is trained comes from `student`; where it has none that is worth keeping,
    from `init`, another model, or `start_from_last_layer`, made of the trunk's last layer.
    `outputs` are files to write of it, `taps` and `dump` what drafts built elsewhere read.
    """

    student: PathText
    init: PathText | None = None
    start_from_last_layer: bool = False
    data: Annotated[tuple[SetSpec, ...], Field(min_length=1)]
    pack: PackConfig = PackConfig()
    trunk: TrunkConfig = TrunkConfig()
    probe: ProbeConfig = ProbeConfig()
    train: TrainConfig = TrainConfig()
    measure: MeasureConfig = MeasureConfig()
    outputs: tuple[OutputSpec, ...] = ()
    taps: TapsConfig | None = None
    dump: bool = False
    runtime: RuntimeConfig = RuntimeConfig()

    @property
    def start(self) -> StartKind:
        """Whose draft is trained."""
        if self.start_from_last_layer:
            return "fresh"
        return "own" if self.init is None else "init"

    def contradictions(self) -> Iterator[str]:
        """What one section says against another."""
        if self.start_from_last_layer and self.init is not None:
            yield (
                "init and start_from_last_layer both name a starting draft; set one of them"
            )
        if self.start_from_last_layer and self.train.trainable == "block":
            yield (
                "train.trainable is block, but a draft started from the last layer must be "
                "trained whole; set train.trainable to all or auto"
            )
        if self.start_from_last_layer and self.train.layout != "exact":
            yield (
                "a draft started from the last layer must be trained whole, and "
                f"train.layout: {self.train.layout} keeps inputs made through its "
                "projection; set train.layout: exact"
            )
        if self.pack.hold_all and self.train.trains:
            yield (
                "pack.hold_all holds out every window, so there is nothing to train on; "
                "set train.epochs to 0 to measure only"
            )
