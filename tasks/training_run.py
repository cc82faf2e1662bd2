"""One process's part in training a draft; rank 0 also saves, tells and writes the draft."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from conf.training import TrainSettings
from store.artifact import Artifact
from tasks.drafts import DraftSource, load_draft, write_draft_tensors
from tasks.model_file import ModelPart
from tasks.packed import read_windows
from tasks.stage import Runtime, mark_resumed
from tasks.trunk_rows import read_rows

if TYPE_CHECKING:  # torch, which the process that only starts ranks may do without
    from nets.fit_state import EvalRecord, StepRecord
    from nets.ranks import Ranks
    from nets.training import FitResult


@dataclass(frozen=True)
class Training:
    """What is trained from what, and the folder that it fills."""

    out: Path
    settings: TrainSettings
    windows: Artifact
    rows: Artifact
    trunk: ModelPart
    draft: DraftSource
    init: DraftSource | None
    save_every_s: float


class Listener(Protocol):
    """Who is told how a training goes; by rank 0 alone."""

    def say(self, text: str) -> None:
        """One line for a human."""

    def resumed(self, steps: int) -> None:
        """It goes on from a checkpoint after so many steps; 0: from nothing."""

    def step(self, record: "StepRecord") -> None:
        """A step was made."""

    def evaluation(self, record: "EvalRecord") -> None:
        """The draft was measured on held-out windows."""


class Unheard:
    """What the other ranks tell: nothing."""

    def say(self, text: str) -> None:
        """Rank 0 says it."""

    def resumed(self, steps: int) -> None:
        """Rank 0 says it."""

    def step(self, record: "StepRecord") -> None:
        """Rank 0 says it."""

    def evaluation(self, record: "EvalRecord") -> None:
        """Rank 0 says it."""


def run_training(
    training: Training, runtime: Runtime, listener: Listener, ranks: "Ranks"
) -> "FitResult":
    """Train as one of the ranks; rank 0 leaves `draft.safetensors` in the folder.

    Raises what `nets.training.fit` does.
    """
    from nets.training import FitRuntime, FitWindows, fit
    from tasks.checkpoint import Checkpoint
    from tasks.row_source import RowSource, chosen_windows

    heard = listener if ranks.is_first else Unheard()
    settings, packed = training.settings, read_windows(training.windows)
    given = (training.trunk, training.draft, training.init)
    draft = load_draft(*given, settings.wiring, settings.dtype, runtime)
    checkpoint = Checkpoint(training.out, heard.say)
    resume = checkpoint.load()
    if resume is not None and ranks.is_first:
        mark_resumed(training.out)
    heard.resumed(0 if resume is None else len(resume.facts.steps))
    result = fit(
        draft,
        RowSource(packed, read_rows(training.rows, runtime)),
        FitWindows(tuple(packed.training), chosen_windows(packed, packed.held_out)),
        settings,
        FitRuntime(
            budget_bytes=runtime.head_budget_bytes,
            on_step=heard.step,
            on_eval=heard.evaluation,
            save=checkpoint.save,
            save_every_s=training.save_every_s,
            resume=resume,
            should_stop=runtime.stop.is_set,
            ranks=ranks,
        ),
    )
    if ranks.is_first:
        write_draft_tensors(training.out, draft.tensors())
    return result
