"""What a training run logs, and the state that makes a cut run end bit-equal."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict
from torch import Tensor


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StepRecord(_Frozen):
    """One counted step. `loss` is weighted, `kl` is the plain mean of each chain step.

    Both are of the loss that is trained, hard targets included; a job of `rows` or `stride`
    has one entry, its own, and says its `kind` (from 0). `grad_norm` is the global norm
    before it is clipped to 1.
    """

    step: int
    loss: float
    lr: float
    grad_norm: float
    kl: tuple[float, ...]
    kind: int | None = None


class EvalRecord(_Frozen):
    """An evaluation on held-out windows after `step` steps; step 0 is before training.

    `kl` is the mean over rows that count, by chain step; `kind_kl`, of `rows` and `stride`
    only, over all rows of each kind, by inputs as old as the last refresh. Both are
    `tail_kl` without hard targets or weights. `walk` and `starts` are drafts held,
    `walk_interval` at 95 % (None in a checkpoint of before it was kept);
    `hold_rates` are by `select_by`; `is_best`: it became the checkpoint to keep. All but
    `kind_kl` are of exact chains, whatever is trained: of what a decode does.
    """

    step: int
    kl: tuple[float, ...]
    walk: float
    walk_interval: tuple[float, float] | None = None
    starts: float
    hold_rates: tuple[float, ...]
    is_best: bool
    kind_kl: tuple[float, ...] = ()


class FitFacts(_Frozen):
    """The JSON half of a checkpoint: counters, job order, log.

    `refresh_round` is 0 with `exact`, which refreshes nothing.
    """

    skipped: int
    loss_scale: float
    refresh_round: int
    order: tuple[int, ...]
    place: int
    generator: int
    steps: tuple[StepRecord, ...]
    evaluations: tuple[EvalRecord, ...]


@dataclass(frozen=True)
class FitState:
    """A checkpoint: `tensors` for a safetensors file, `facts` for a JSON one.

    Tensors are named `weight/…`, `moment1/…`, `moment2/…` (of Muon `momentum/…`), `best/…`
    by parameter, with `rows` and `stride` `inputs/…` too (`nets.jobs`), and `counted` and
    `hit` by window and chain step of the best evaluation: copies on the CPU.
    """

    tensors: Mapping[str, Tensor]
    facts: FitFacts
