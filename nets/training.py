"""Training a draft on its trunk's own next-token distribution, a whole chain in every step.

healing.md §8, "Ours (exact)": `tail_kl`, chain steps weighted by reach, f32 masters, the
best checkpoint by drafts held on held-out windows. Axes: B windows, C chain steps, R rows.
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
from nets.evaluate import Compute, evaluate
from nets.fit_state import EvalRecord, FitFacts, FitState, StepRecord
from nets.head import fused_loss
from nets.hold import count_starts, count_walk, drafts_held, rates, reach
from nets.optimizer import NamedAdam
from nets.schedule import JobOrder, cut_batches, job_generator, learning_rate
from nets.selection import BestCheckpoint, select_counts
from nets.source import Batch, Source, Windows, read_batch, take_rows
from nets.training_rows import trained_rows

MOST_SKIPPED = 20


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
    `should_stop` says so, the run saves what it has and ends with Stopped.
    """

    budget_bytes: int
    on_step: Callable[[StepRecord], None] = lambda _: None
    on_eval: Callable[[EvalRecord], None] = lambda _: None
    save: Callable[[FitState], None] = lambda _: None
    save_every_s: float = math.inf
    resume: FitState | None = None
    should_stop: Callable[[], bool] = lambda: False


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
    saved_at = time.monotonic()
    run.evaluate_if_due()
    while not run.is_finished():
        run.train_step()
        run.stop_if_asked()
        run.evaluate_if_due()
        if time.monotonic() - saved_at >= runtime.save_every_s:
            runtime.save(run.state())
            saved_at = time.monotonic()
    run.best.restore()
    return FitResult(tuple(run.steps), tuple(run.evaluations), run.skipped)


def chain_losses(
    draft: Draft,
    batch: Batch,
    depth: int,
    compute: Compute,
    chosen_BTC: Tensor | None = None,
) -> Tensor:
    """Mean `tail_kl` of each chain step over its rows, f64 [C], with a gradient.

    `chosen_BTC` says which of them go through the head (`trained_rows`); None: all.
    """
    losses = []
    with compute.autocast(batch.ids_BT.device):
        for step in batch.chains(draft, depth):
            chosen_BT = step.alive_BT
            if chosen_BTC is not None:
                chosen_BT = chosen_BT & chosen_BTC[:, :, step.step - 1]
            rows = take_rows(batch, step, chosen_BT)
            total = fused_loss(
                "tail_kl",
                draft.read_out(rows.output_RH),
                draft.shared.head_VH,
                rows.topk_id_RK,
                rows.topk_p_RK,
                compute.budget_bytes,
            )
            losses.append(total / max(len(rows.at_R), 1))
    return torch.stack(losses)


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
        self.draft, self.source, self.settings, self.runtime = (
            draft,
            source,
            settings,
            runtime,
        )
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
        self.adam = NamedAdam(trained)
        self.best = BestCheckpoint(trained, settings.seed)
        self.jobs = JobOrder([*range(len(self.batches))], job_generator(settings.seed))
        self.steps: list[StepRecord] = []
        self.evaluations: list[EvalRecord] = []
        self.skipped = 0

    def is_finished(self) -> bool:
        """Whether all steps are done, or `patience` evaluations brought no new best."""
        stale = 0
        for record in self.evaluations:
            stale = 0 if record.is_best else stale + 1
        patience = self.settings.patience
        gave_up = patience is not None and stale >= patience
        return gave_up or len(self.steps) >= self.settings.steps

    def evaluate_if_due(self) -> None:
        """Evaluate before training, every `eval_every` steps and at the end; once each."""
        done, settings = len(self.steps), self.settings
        is_due = done % settings.eval_every == 0 or done == settings.steps
        if not is_due or (self.evaluations and self.evaluations[-1].step == done):
            return
        found = evaluate(
            self.draft,
            self.source,
            self.held_out,
            settings.depth,
            self.compute,
            on_windows=lambda _: self.stop_if_asked(),
        )
        counts = select_counts(found.arrays, settings.select_by)
        record = EvalRecord(
            step=done,
            kl=found.kl_C,
            walk=drafts_held(count_walk(found.arrays)),
            starts=drafts_held(count_starts(found.arrays)),
            hold_rates=rates(counts),
            is_best=self.best.offer(counts),
        )
        self.evaluations.append(record)
        self.runtime.on_eval(record)

    def stop_if_asked(self) -> None:
        """Save and end with Stopped, if that was asked for."""
        if not self.runtime.should_stop():
            return
        step = f"step {len(self.steps)} of {self.settings.steps}"
        if not self.evaluations:
            raise Stopped(f"before {step}, at the evaluation before training")
        self.runtime.save(self.state())
        raise Stopped(f"after {step}, which is saved")

    def train_step(self) -> None:
        """One batch with its whole chain; a step that isn't finite changes no weight."""
        windows = self.batches[self.jobs.draw()]
        batch = read_batch(self.source, windows, self.draft.shared.head_VH.device)
        chosen_BTC = trained_rows(self.settings, len(self.steps) + 1, batch)
        kl_C = chain_losses(
            self.draft, batch, self.settings.depth, self.compute, chosen_BTC
        )
        reach_C = kl_C.new_tensor(reach(self.evaluations[-1].hold_rates))
        loss = (reach_C * kl_C).sum() / reach_C.sum()
        torch.autograd.backward(loss)
        # One transfer a step.
        norm, *kl = torch.stack([self.adam.clip().double(), *kl_C.detach()]).tolist()
        if math.isfinite(norm) and all(map(math.isfinite, kl)):
            self._count_step(float(loss.detach()), norm, kl)
        else:
            self._skip_step(windows, kl, norm)
        self.adam.drop_gradients()

    def _count_step(self, loss: float, norm: float, kl: Sequence[float]) -> None:
        step = len(self.steps) + 1
        lr = learning_rate(step, self.settings.steps, self.settings.lr)
        self.adam.step(lr)
        record = StepRecord(step=step, loss=loss, lr=lr, grad_norm=norm, kl=tuple(kl))
        self.steps.append(record)
        self.runtime.on_step(record)

    def _skip_step(self, windows: Sequence[int], kl: Sequence[float], norm: float) -> None:
        self.skipped += 1
        if self.skipped >= MOST_SKIPPED:
            raise TrainingError(
                f"step {len(self.steps) + 1}, windows {', '.join(map(str, windows))}: loss "
                f"{kl}, gradient norm {norm}; that is the {MOST_SKIPPED}th step of this "
                "run that isn't finite; lower train.lr, or check the starting draft"
            )

    def state(self) -> FitState:
        """A checkpoint of everything that decides what follows."""
        facts = FitFacts(
            skipped=self.skipped,
            order=tuple(self.jobs.order),
            place=self.jobs.place,
            generator=self.jobs.generator.state,
            steps=tuple(self.steps),
            evaluations=tuple(self.evaluations),
        )
        return FitState({**self.adam.tensors(), **self.best.tensors()}, facts)

    def load(self, state: FitState) -> None:
        """Go on from a checkpoint."""
        facts = state.facts
        self.steps, self.evaluations = list(facts.steps), list(facts.evaluations)
        self.skipped = facts.skipped
        self.jobs = JobOrder([*facts.order], Xorshift64(facts.generator), facts.place)
        self.adam.load(state.tensors, len(self.steps))
        self.best.load(state.tensors)
