"""Settings of draft training (healing.md §8): as given, and as a stage is keyed."""

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from conf.base import AtLeastOne, Depth, Number, Seed, Settings, Whole, Wiring

Layout: TypeAlias = Literal["exact", "rows", "stride"]
OptimizerKind: TypeAlias = Literal["adam", "muon"]
Loss: TypeAlias = Literal["tail_kl", "topk_kl", "tv", "lk"]
MOST_EPOCHS, MOST_STEPS = 10**6, 10**9  # more is a slip of the hand

Weight = Annotated[Number, Field(ge=0)]
StepWeights: TypeAlias = Literal["reach", "uniform"] | tuple[Weight, ...]


class TrainChoices(Settings):
    """What is trained on which rows towards what; the same in both.

    `layout` is how chains lie in a window (healing.md §6); `stride` is the distance of the
    starts in the layout of that name. `rows` and `stride` rebuild their inputs every
    `refresh` steps, 0: only at the start: `exact` for what a decode has, the others for the
    reference's. `depth` is the drafts a round that the runtime will ask for.

    `hard` is the share of the target's mass that goes to the trunk's own token.
    `step_weights` are those of the chain steps in the loss: the probability that a round
    reaches each, all alike, or as listed. `through_chain` lets the gradient of a step reach
    those before it through its input (`exact` alone unrolls a chain in one step).

    `optimizer` moves the weights: `adam`, the reference's, or `muon`, of matrices alone and
    with a higher `lr`; a step is `batch` windows.

    Every `eval_every` steps the draft is measured on `eval_windows` held-out windows a set,
    None: all; fewer where a look costs more than it tells. The best by `select_by` is kept,
    `starts` for the reference's measure, and `patience` looks without a better one end it.
    `seed` orders batches and draws: another tells what of a gain is chance.

    From chain step 2 on, `on_path` trains only chains that a decode would run (fed with the
    trunk's own tokens), `anchors` only a share of the starts: the head is most of the cost
    where the vocabulary is large.
    """

    depth: Depth = 3
    layout: Layout = "exact"
    stride: AtLeastOne | None = None
    refresh: Annotated[Whole, Field(ge=0)] = 150
    loss: Loss = "tail_kl"
    hard: Annotated[Number, Field(ge=0, le=1)] = 0.25
    step_weights: StepWeights = "reach"
    through_chain: bool = False
    optimizer: OptimizerKind = "adam"
    lr: Annotated[Number, Field(gt=0, le=1)] = 2e-5
    batch: AtLeastOne = 2
    eval_every: AtLeastOne = 25
    eval_windows: AtLeastOne | None = None
    patience: AtLeastOne | None = 6
    select_by: Literal["walk", "starts"] = "walk"
    on_path: bool = False
    anchors: Annotated[Number, Field(gt=0, le=1)] | None = None
    seed: Seed = 0

    @property
    def kinds(self) -> int:
        """Jobs that a batch makes: a kind of input each (healing.md §8); 1 for `exact`."""
        if self.layout == "rows":
            return self.depth
        return 2 if self.layout == "stride" and self.depth > 1 else 1

    def contradictions(self) -> Iterator[str]:
        """Layout, stride and weights that do not go together."""
        if (self.layout == "stride") != (self.stride is not None):
            yield (
                "train.stride is the distance of the starts in train.layout: stride; give "
                "both or neither"
            )
        if self.stride is not None and self.stride < self.depth:
            yield (
                f"train.stride is {self.stride}, chains of {self.depth} would overlap; it "
                "must be at least train.depth"
            )
        only = ("on_path", "anchors", "step_weights")
        fields = type(self).model_fields
        chosen = [n for n in only if getattr(self, n) != fields[n].default]
        if self.layout != "exact" and chosen:
            yield (
                f"{', '.join(f'train.{name}' for name in chosen)}: only train.layout: "
                f"exact unrolls a chain in one step; leave out with {self.layout}"
            )
        weights = self.step_weights
        if isinstance(weights, str):
            return
        if len(weights) != self.depth or not sum(weights):
            yield (
                f"train.step_weights lists {len(weights)} weights of sum {sum(weights):g}; "
                f"give one for each of the {self.depth} chain steps, not all 0"
            )


class TrainConfig(TrainChoices):
    """Draft training. `steps`, when given, replaces `epochs`; 0 epochs only measure.

    `trainable: auto` is all of the draft with `exact` or a fresh draft, else its block.
    """

    trainable: Literal["auto", "block", "all"] = "auto"
    epochs: Annotated[Number, Field(ge=0, le=MOST_EPOCHS)] = 1.0
    steps: Annotated[AtLeastOne, Field(le=MOST_STEPS)] | None = None

    @property
    def trains(self) -> bool:
        """Whether there is a step to do."""
        return self.steps is not None or self.epochs > 0

    def contradictions(self) -> Iterator[str]:
        """Those of every training, and what is trained against how."""
        yield from super().contradictions()
        if self.trainable == "all" and self.layout != "exact":
            yield (
                f"train.trainable is all, but the layout {self.layout} keeps inputs made "
                "through the projection; set train.trainable: block or train.layout: exact"
            )


class TrainSettings(TrainChoices):
    """What `train_draft` is keyed by and what `nets.training.fit` reads: no `auto` left."""

    trainable: Literal["block", "all"]
    steps: Whole
    dtype: Literal["bf16", "f32"]
    wiring: Wiring
