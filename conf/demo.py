"""Settings of the demonstrations: the source, how it is folded, then the heal."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, field_validator

from conf.base import AtLeastOne, Number, Seed, Settings, Whole
from conf.schema import DataSpec, RunConfig
from conf.training import OptimizerKind

SHIPPED_DEMOS = {"tiny": "demo", "smollm2": "smollm2"}  # model: configuration


class TrunkRecipe(Settings):
    """A small Qwen3-style trunk made from scratch: its shape, its text and its training."""

    layers: Annotated[Whole, Field(ge=2)]
    hidden: Annotated[Whole, Field(ge=32)]
    heads: AtLeastOne
    kv_heads: AtLeastOne
    ffn: Annotated[Whole, Field(ge=32)]
    vocab: Annotated[Whole, Field(ge=300)]
    window: Annotated[Whole, Field(ge=32)]
    data: tuple[DataSpec, ...]
    steps: AtLeastOne
    batch: AtLeastOne
    lr: Annotated[Number, Field(gt=0)]
    seed: Seed = 0


class NativeDraft(Settings):
    """Training of the source's own draft, started from the source's last layer."""

    steps: AtLeastOne
    optimizer: OptimizerKind = "adam"
    lr: Annotated[Number, Field(gt=0)]


class FoldSettings(Settings):
    """What a fold removes: layers by index, then FFN neurons of each layer that stays.

    `ffn` is the share of neurons kept, one for all layers or one for each kept layer; a
    width is rounded to a multiple of 32. The neurons that matter least on `windows` windows
    of the data go first.
    """

    drop: tuple[Annotated[Whole, Field(ge=0)], ...] = ()
    ffn: Annotated[
        tuple[Annotated[Number, Field(gt=0, le=1)], ...], Field(min_length=1)
    ] = (1.0,)
    windows: AtLeastOne = 32

    @field_validator("drop")
    @classmethod
    def _each_once(cls, drop: tuple[int, ...]) -> tuple[int, ...]:
        twice = sorted({layer for layer in drop if drop.count(layer) > 1})
        if twice:
            raise ValueError(
                f"names layer {', '.join(map(str, twice))} more than once; name each layer "
                "that goes once"
            )
        return drop

    @property
    def folds(self) -> bool:
        """Whether it takes anything away."""
        return bool(self.drop) or any(share < 1 for share in self.ffn)


class Gate(Settings):
    """What a demonstration must show, in drafts held per round; None asks nothing.

    `coverage` is the least share of rows that count, `source_over_healed` the most that a
    heal may leave lost, the others the least gain; `by` is the measure that decides.
    """

    coverage: Number | None = None
    source_over_stale: Number | None = None
    healed_over_stale: Number
    healed_over_control: Number
    source_over_healed: Number | None = None
    healed_over_fresh: Number | None = None
    by: Literal["walk", "starts"]


class DemoSettings(Settings):
    """The story around the heal. Without `trunk` the source is a package's GGUF.

    `fresh` trains one from the last layer as well, to compare. The heal is done with each
    of `seeds`, where one alone would leave open what is chance.
    """

    about: str
    duration: str
    trunk: TrunkRecipe | None = None
    gguf_package: str | None = None
    native: NativeDraft
    fold: FoldSettings
    fresh: bool = True
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    gate: Gate

    def contradictions(self) -> Iterator[str]:
        """None or two sources."""
        if (self.trunk is None) == (self.gguf_package is None):
            yield "give one source: trunk (made here) or gguf_package (imported)"


class DemoConfig(Settings):
    """A demonstration: `demo` makes the stale student, `heal` is a whole `RunConfig`."""

    demo: DemoSettings
    heal: RunConfig
