"""Training a draft on its trunk's own next-token distribution (healing.md §8).

With `exact` a step is a batch with its whole chain unrolled, with `rows` and `stride` a job
of `nets.jobs`; f32 masters, the best checkpoint by drafts held on held-out windows, always
of exact chains. Axes: B windows, C chain steps, R rows.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from conf.shuffle import Xorshift64
from conf.training import TrainSettings
from nets.draft import Draft
from nets.errors import Stopped, TrainingError
from nets.evaluate import Compute
from nets.fit_state import EvalRecord, FitFacts, FitState, StepRecord
from nets.hold import drafts_held, held, rates
from nets.jobs import KindJobs
from nets.optimizer import NamedOptimizer
from nets.ranks import ALONE, Ranks
from nets.schedule import JobOrder, cut_batches, job_generator, learning_rate
from nets.selection import BestCheckpoint
from nets.source import Source, Windows
from nets.step_losses import StepLosses
from nets.tally import own_windows, tally

MOST_SKIPPED = 20
LOSS_SCALE = 4096.0  # halved at every step that isn't finite, which only f16 can gain by


@dataclass(frozen=True)
class FitWindows:
    """Windows trained on, in order of index, and windows held out."""

    train: tuple[int, ...]
    held_out: Windows


@dataclass(frozen=True)
class FitRuntime:
    """What changes no result: memory, who listens, where a cut run goes on.

    `save` is given a checkpoint after a step once `save_every_s` seconds have passed since
    the last; `resume` is such a checkpoint, of a run with the same inputs. Once
    `should_stop` says so, the run saves what it has and ends with Stopped. Of several
    `ranks`, which change rounding, the first alone saves and is asked to stop.
    """

    budget_bytes: int
    on_step: Callable[[StepRecord], None] = lambda _: None
    on_eval: Callable[[EvalRecord], None] = lambda _: None
    save: Callable[[FitState], None] = lambda _: None
    save_every_s: float = math.inf
    resume: FitState | None = None
    should_stop: Callable[[], bool] = lambda: False
    ranks: Ranks = ALONE


@dataclass(frozen=True)
class FitResult:
    """What a run did, step by step; `skipped` steps were not finite and are not counted."""

    steps: tuple[StepRecord, ...]
    evaluations: tuple[EvalRecord, ...]
    skipped: int

    @property
    def start(self) -> EvalRecord:
        """The evaluation before training."""
        return self.evaluations[0]

    @property
    def best(self) -> EvalRecord:
        """The evaluation of the checkpoint that was kept."""
        return [record for record in self.evaluations if record.is_best][-1]


def fit(
    draft: Draft,
    source: Source,
    windows: FitWindows,
    settings: TrainSettings,
    runtime: FitRuntime,
) -> FitResult:
    """Train the draft in place; it ends with the weights of its best checkpoint.

    Equal inputs give equal bits on one machine and thread count, cut and resumed or not.
    TrainingError for too few windows, the 20th step that isn't finite, or bad stored rows;
    Stopped, with a checkpoint saved, when `runtime.should_stop` asks for it.
    """
    run = _Run(draft, source, windows, settings, runtime)
    if runtime.resume is not None:
        run.load(runtime.resume)
    runtime.ranks.refuse_unlike(f"{settings!r} {windows!r} {run.facts()!r}")
    saved_at = time.monotonic()
    run.evaluate_if_due()
    while not run.is_finished():
        run.train_step()
        run.refresh_if_due()
        run.stop_if_asked()
        run.evaluate_if_due()
        is_due = time.monotonic() - saved_at >= runtime.save_every_s
        if is_due and runtime.ranks.is_first:
            runtime.save(run.state())
            saved_at = time.monotonic()
    run.best.restore()
    return FitResult(tuple(run.steps), tuple(run.evaluations), run.skipped)


class _Run:
    """The moving parts of one `fit`."""

    def __init__(
        self,
        draft: Draft,
        source: Source,
        windows: FitWindows,
        settings: TrainSettings,
        runtime: FitRuntime,
    ) -> None:
        self.draft, self.source = draft, source
        self.settings, self.runtime, self.ranks = settings, runtime, runtime.ranks
        self.batches = cut_batches(windows.train, settings.batch)
        if not self.batches:
            raise TrainingError(
                f"{len(windows.train)} training windows don't fill a batch of "
                f"{settings.batch}; give more data or lower train.batch"
            )
        self.held_out = windows.held_out.capped(settings.eval_windows)
        self.compute = Compute(settings.batch, settings.dtype, runtime.budget_bytes)
        draft.trainable(settings.trainable)
        trained = {name: p for name, p in draft.named_parameters() if p.requires_grad}
        self.optimizer = NamedOptimizer(trained, settings.optimizer)
        self.best = BestCheckpoint(trained, settings.seed)
        self.by_kind = (
            None if settings.layout == "exact" else KindJobs(draft, settings, self.compute)
        )
        self.losses = StepLosses(draft, source, settings, self.compute, self.by_kind)
        order = [*range(len(self.batches) * settings.kinds)]
        self.jobs = JobOrder(order, job_generator(settings.seed))
        self.steps: list[StepRecord] = []
        self.evaluations: list[EvalRecord] = []
        self.skipped, self.loss_scale = 0, LOSS_SCALE

    def is_finished(self) -> bool:
        """Whether all steps are done, or `patience` evaluations brought no new best."""
        stale = 0
        for record in self.evaluations:
            stale = 0 if record.is_best else stale + 1
        patience = self.settings.patience
        gave_up = patience is not None and stale >= patience
        is_over = gave_up or len(self.steps) >= self.settings.steps
        return self.ranks.says_first(here=is_over)

    def refresh_if_due(self) -> None:
        """Bring the inputs of `rows` and `stride` up to date; nothing to do for `exact`."""
        if self.by_kind is not None:
            self.by_kind.refresh_if_due(len(self.steps))

    def evaluate_if_due(self) -> None:
        """Evaluate before training, every `eval_every` steps and at the end; once each."""
        done, settings = len(self.steps), self.settings
        is_due = done % settings.eval_every == 0 or done == settings.steps
        if not is_due or (self.evaluations and self.evaluations[-1].step == done):
            return
        kind_kl = self._kind_kl()
        given = (self.draft, self.source, self.held_out, settings.depth, self.compute)
        found = tally(*given, self.ranks, self._stop_between_windows)
        counts = found.chosen(settings.select_by)
        walk = held(found.walk, settings.seed)
        record = EvalRecord(
            step=done,
            kl=found.kl_C,
            walk=walk.drafts_held,
            walk_interval=(walk.interval.low, walk.interval.high),
            starts=drafts_held(found.starts),
            hold_rates=rates(counts),
            is_best=self.best.offer(counts),
            kind_kl=kind_kl,
        )
        self.evaluations.append(record)
        self.runtime.on_eval(record)

    def _kind_kl(self) -> tuple[float, ...]:
        if self.by_kind is None:
            return ()
        own = own_windows(self.held_out, self.compute.batch, self.ranks)
        windows, listener = own.of(self.held_out.index), self._stop_between_windows
        return self.by_kind.held_out_kl(self.source, windows, listener, self.ranks)

    def _stop_between_windows(self, _: int) -> None:
        # Ranks need not measure equally many windows: several ask afterwards.
        if self.ranks.size == 1:
            self.stop_if_asked()

    def stop_if_asked(self) -> None:
        """Save and end with Stopped, if that was asked for."""
        if not self.ranks.says_first(here=self.runtime.should_stop()):
            return
        step = f"step {len(self.steps)} of {self.settings.steps}"
        if not self.evaluations:
            raise Stopped(f"before {step}, at the evaluation before training")
        if self.ranks.is_first:
            self.runtime.save(self.state())
        raise Stopped(f"after {step}, which is saved")

    def train_step(self) -> None:
        """One job; a step that isn't finite changes no weight and halves the loss scale."""
        place, kind = divmod(self.jobs.draw(), self.settings.kinds)
        windows = self.batches[place]
        kl_C, loss = self._sent_backward(windows, kind)
        # One transfer a step.
        found = [self.optimizer.clip(self.loss_scale).double(), loss, *kl_C]
        norm, total, *kl = self.ranks.first_s(torch.stack(found)).tolist()
        if math.isfinite(norm) and all(map(math.isfinite, kl)):
            self._count_step(
                loss=total,
                grad_norm=norm,
                kl=tuple(kl),
                kind=None if self.by_kind is None else kind,
            )
        else:
            self._skip_step(windows, kl, norm)
        self.optimizer.drop_gradients()

    def _sent_backward(self, windows: Sequence[int], kind: int) -> tuple[Tensor, Tensor]:
        """The mean loss of each chain step over the batch, and these weighted.

        Gradients are then those of the whole batch, times the loss scale, on every rank.
        """
        share, step = self.ranks.share(len(windows)), len(self.steps) + 1
        own_C = self.losses.over(share.of(windows), share, step, kind).means(self.ranks)
        weight_C = self.losses.weights(self.evaluations[-1].hold_rates)
        if own_C.requires_grad:
            torch.autograd.backward((weight_C * own_C).sum() * self.loss_scale)
        self.ranks.sum_gradients_(self.optimizer.parameters.values())
        kl_C = self.ranks.sum_(own_C.detach())
        return kl_C, (weight_C * kl_C).sum()

    def _count_step(
        self, loss: float, grad_norm: float, kl: tuple[float, ...], kind: int | None
    ) -> None:
        step = len(self.steps) + 1
        lr = learning_rate(step, self.settings.steps, self.settings.lr)
        self.optimizer.step(lr)
        record = StepRecord(
            step=step, loss=loss, lr=lr, grad_norm=grad_norm, kl=kl, kind=kind
        )
        self.steps.append(record)
        self.runtime.on_step(record)

    def _skip_step(self, windows: Sequence[int], kl: Sequence[float], norm: float) -> None:
        self.skipped += 1
        self.loss_scale = max(self.loss_scale / 2, 1.0)
        if self.skipped >= MOST_SKIPPED:
            raise TrainingError(
                f"step {len(self.steps) + 1}, windows {', '.join(map(str, windows))}: loss "
                f"{kl}, gradient norm {norm}; that is the {MOST_SKIPPED}th step of this "
                "run that isn't finite; lower train.lr, or check the starting draft"
            )

    def facts(self) -> FitFacts:
        """Counters, job order and log: a checkpoint less its tensors."""
        return FitFacts(
            skipped=self.skipped,
            loss_scale=self.loss_scale,
            refresh_round=0 if self.by_kind is None else self.by_kind.round,
            order=tuple(self.jobs.order),
            place=self.jobs.place,
            generator=self.jobs.generator.state,
            steps=tuple(self.steps),
            evaluations=tuple(self.evaluations),
        )

    def state(self) -> FitState:
        """A checkpoint of everything that decides what follows."""
        inputs = {} if self.by_kind is None else self.by_kind.tensors()
        tensors = {**self.optimizer.tensors(), **self.best.tensors(), **inputs}
        return FitState(tensors, self.facts())

    def load(self, state: FitState) -> None:
        """Go on from a checkpoint."""
        facts = state.facts
        self.steps, self.evaluations = list(facts.steps), list(facts.evaluations)
        self.skipped, self.loss_scale = facts.skipped, facts.loss_scale
        self.jobs = JobOrder([*facts.order], Xorshift64(facts.generator), facts.place)
        self.optimizer.load(state.tensors, len(self.steps))
        self.best.load(state.tensors)
        if self.by_kind is not None:
            self.by_kind.load(state.tensors, facts.refresh_round)
