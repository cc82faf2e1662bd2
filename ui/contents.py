"""What a report knows: frozen, JSON-serialisable, no figure spelled yet.

The words are those of healing.md §7: *drafts held* are per round and by the walk unless a
name says *starts*, *rows* those of it that count at step 1, *coverage* the share of all
starts that do. Shares and rates run from 0 to 1. Intervals are (low, high) at 95 %.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from conf.schema import Cost, StartKind

DraftName = Literal["source", "stale", "healed", "control", "fresh"]
StageState = Literal["cached", "ran", "resumed"]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Held = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]

DRAFTS: tuple[DraftName, ...] = ("source", "stale", "healed", "control", "fresh")
# Two-sided 95 % of a normal: turns a standard error into half an interval.
Z95 = 1.959964


class Part(BaseModel):
    """Base of everything in a report: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Rate(Part):
    """The hold rate of one chain step by the walk, its interval and the rows under it.

    `rate` is given that the steps before held; `running` is over all rounds.
    """

    step: Annotated[int, Field(ge=1)]
    rate: Share | None
    lo: Share | None = None
    hi: Share | None = None
    rows: Count
    running: Share | None = None
    running_lo: Share | None = None
    running_hi: Share | None = None


class Place(Part):
    """Hold rates of the rounds that start at rows `first` to `last` of a window."""

    first: Count
    last: Count
    hold_rates: tuple[Rate, ...]


class DepthHeld(Part):
    """Drafts held by rounds of this depth, each depth walked anew; 0 is plain decoding."""

    depth: Count
    drafts_held: Held
    interval: tuple[Finite, Finite] | None = None
    rows: Count


class BestOf(Part):
    """How often the trunk's own token is among a step's first two, three, four."""

    step: Annotated[int, Field(ge=1)]
    rows: Count
    top2: Share | None
    top3: Share | None
    top4: Share | None


class Accepted(Part):
    """How often a sampling trunk takes a step's draft: bounds, and the interval of both.

    `sampled` is of a draft drawn from its own distribution, `greedy` of its first token.
    """

    step: Annotated[int, Field(ge=1)]
    rows: Count
    sampled: tuple[Share, Share] | None
    sampled_interval: tuple[Share, Share] | None
    greedy: tuple[Share, Share] | None
    greedy_interval: tuple[Share, Share] | None


class Sampling(Part):
    """Acceptance at one temperature, by chain step."""

    temperature: Annotated[float, Field(ge=0)]
    steps: tuple[Accepted, ...]


class SampledChains(Part):
    """Drafts held by whole chains, on text the trunk sampled at this temperature."""

    temperature: Annotated[float, Field(gt=0)]
    rows: Count
    sampled: tuple[Held, Held]
    sampled_interval: tuple[Held, Held]
    greedy: tuple[Held, Held]
    greedy_interval: tuple[Held, Held]


class Vocabulary(Part):
    """What a head of the `tokens` most frequent tokens keeps of the trunk's choices."""

    size: Count
    tokens: Count
    own: Share
    mass: Share
    rows: Count


class SetMeasure(Part):
    """What was measured of one draft on one data set (or on all of them)."""

    drafts_held: Held
    drafts_held_starts: Held | None = None
    interval: tuple[Finite, Finite] | None = None
    rows: Count
    windows: Count | None = None
    coverage: Share | None = None
    hold_rates: tuple[Rate, ...] = ()
    tokens_a_round: Annotated[float, Field(ge=1)] | None = None
    hold_rates_starts: tuple[Rate, ...] = ()
    by_position: tuple[Place, ...] = ()
    by_depth: tuple[DepthHeld, ...] = ()
    best_of: tuple[BestOf, ...] = ()
    sampling: tuple[Sampling, ...] = ()

    @model_validator(mode="after")
    def _ordered(self) -> "SetMeasure":
        if self.interval is not None and self.interval[0] > self.interval[1]:
            raise ValueError(f"interval {self.interval} runs backwards; give (low, high)")
        return self


class Measure(SetMeasure):
    """A draft on all held-out windows, and by data set."""

    by_set: dict[str, SetMeasure] = {}
    sampled_chains: tuple[SampledChains, ...] = ()
    vocabulary: tuple[Vocabulary, ...] = ()


class Difference(Part):
    """A paired difference of drafts held over the same windows, with its standard error."""

    value: Finite
    se: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    windows: Count

    @property
    def half_width(self) -> float:
        """Half the 95 % interval."""
        return Z95 * self.se


class TrainingRow(Part):
    """One training step; `kl` and `held` where it was evaluated, the others from step 1 on.

    A skipped step has no loss and no norm: they were not finite. `held_low` to `held_high`
    is the 95 % interval of `held`; a log of before it was kept has none.
    """

    step: Count
    loss: Finite | None = None
    lr: Finite | None = None
    grad_norm: Finite | None = None
    kl: Finite | None = None
    held: Held | None = None
    held_low: Held | None = None
    held_high: Held | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of `held`."""
        low, high = self.held_low, self.held_high
        return None if low is None or high is None else (low, high)


class Training(Part):
    """A training's log by step, and the step of the chosen checkpoint (0: the start)."""

    rows: tuple[TrainingRow, ...]
    chosen_step: Count
    skipped: Count = 0


class CodecRow(Part):
    """A written file, opened again and measured; `to_keep` is paired with the keep file."""

    codec: str
    draft_bytes: Count
    file_bytes: Count
    drafts_held: Held
    interval: tuple[Finite, Finite] | None = None
    to_keep: Difference | None = None


class ProbeReading(Part):
    """A draft under one wiring and order: the share of rows it names, by chain step.

    `drafts` is their sum; `behind` how many fewer than the best reading's, at 99 %.
    """

    hidden: Literal["raw", "normed"]
    chain: Literal["raw", "normed"]
    order: Literal["emb_hid", "hid_emb"]
    agreement: tuple[Share, ...]
    drafts: Held
    behind: tuple[Finite, Finite]


class ProbeControl(Part):
    """What the best reading names of targets it cannot know; `low` at 99 %."""

    name: Literal["shifted", "foreign"]
    agreement: tuple[Share, ...]
    low: tuple[Share, ...]


class Probe(Part):
    """How the wiring that a heal used was found; `chance` is a constant guess's share."""

    hidden: Literal["raw", "normed"]
    chain: Literal["raw", "normed"]
    outcome: Literal["clear", "same"]
    readings: tuple[ProbeReading, ...]
    controls: tuple[ProbeControl, ...]
    chance: tuple[Share, ...]
    rows: tuple[Count, ...]
    windows: Count


class Timing(Part):
    """A round of decoding as it was timed: medians and quartiles over `rounds` of them.

    `quartiles` are of `verify` and `draft` in plain steps, `seconds` of these and `plain`.
    """

    quartiles: dict[Literal["verify", "draft"], tuple[float, float]]
    seconds: dict[Literal["plain", "verify", "draft"], float]
    rounds: Count
    depth: Count
    context: Count
    threads: Count
    machine: str
    device: str
    dtype: str
    when: datetime


class StageRow(Part):
    """One stage of the run: whether its work was reused, and how long it took."""

    name: str
    key: str
    state: StageState
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    label: str = ""


class Report(Part):
    """A whole heal. `start` is whose draft stale was, `gain` healed − stale."""

    title: str
    made: datetime
    start: StartKind = "own"
    depth: Annotated[int, Field(ge=1)]
    measures: Annotated[dict[DraftName, Measure], Field(min_length=1)]
    gain: Difference | None = None
    gain_by_set: dict[str, Difference] = {}
    held_out_copies: Count = 0  # measured windows that repeat an earlier one
    training: Training | None = None
    probe: Probe | None = None
    codecs: tuple[CodecRow, ...] = ()
    provenance: dict[str, JsonValue] = {}
    cost: Cost = Cost()
    timing: Timing | None = None
    command: str
    config: str = ""
    stages: tuple[StageRow, ...] = ()
    machine: dict[str, str] = {}
    run: str = ""

    @property
    def drafts(self) -> tuple[DraftName, ...]:
        """The drafts that were measured, in the order they are told."""
        return tuple(name for name in DRAFTS if name in self.measures)

    @property
    def set_names(self) -> tuple[str, ...]:
        """The data sets, in the order the measures name them first."""
        found = (name for draft in self.drafts for name in self.measures[draft].by_set)
        return tuple(dict.fromkeys(found))
