"""train_draft: a draft trained on its trunk's rows; resumable (healing.md §8)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from conf.cards import torchrun_place
from conf.training import TrainSettings
from store.artifact import Artifact
from store.manifest import Manifest
from store.tables import write_table
from tasks.drafts import DraftSource, draft_bytes
from tasks.model_file import ModelPart
from tasks.packed import read_windows
from tasks.progress import Bar
from tasks.stage import Runtime, StageResult, stage
from tasks.training_run import Listener, Training, run_training

if TYPE_CHECKING:
    from nets.fit_state import EvalRecord, StepRecord
    from nets.training import FitResult

LOG_TABLE = "log.arrow"
SAVE_EVERY_S = 15.0


def _disk_bytes(settings: TrainSettings, *, draft: DraftSource, **_: object) -> int:
    """Two checkpoints at once of weights, moments and best, and the draft; all in f32."""
    each = draft_bytes(draft)
    return 2 * 4 * each + each


def _expected(
    settings: TrainSettings, past: Manifest | None, **_: object
) -> Mapping[str, object]:
    """The steps if patience does not end it earlier; nothing of what it will find."""
    return {**dict.fromkeys(TRAIN_NUMBERS), "steps": settings.steps}


@stage("train_draft", version=3, needs=_disk_bytes, expects=_expected, on_device=True)
def train_draft(  # noqa: PLR0913 — a stage's inputs, each with a digest of its own
    out: Path,
    settings: TrainSettings,
    runtime: Runtime,
    *,
    windows: Artifact,
    rows: Artifact,
    trunk: ModelPart,
    draft: DraftSource,
    init: DraftSource | None,
) -> StageResult:
    """`draft.safetensors` (f32, the best checkpoint), the log; numbers: steps, held, KL."""
    training = Training(
        out, settings, windows, rows, trunk, draft, init, save_every_s=SAVE_EVERY_S
    )
    packed = read_windows(windows)
    each = {"tokens": settings.batch * float(packed.length[packed.training].mean())}
    with (
        runtime.stop.heeded(),
        runtime.progress.task(
            "training", total=settings.steps, unit="steps", each=each
        ) as bar,
    ):
        result = _trained(training, runtime, _Shown(bar, runtime.progress.say))
    write_table(out / LOG_TABLE, _log_table(result))
    return StageResult(_numbers(result), notes={"ranks": _ranks(runtime)})


@dataclass(frozen=True)
class _Shown:
    """A training's listener: a bar, and lines beside it."""

    bar: Bar
    say: Callable[[str], None]

    def resumed(self, steps: int) -> None:
        """Done before."""
        self.bar.skip(steps)

    def step(self, record: "StepRecord") -> None:
        """One more."""
        self.bar.advance(1, loss=record.loss, lr=record.lr)

    def evaluation(self, record: "EvalRecord") -> None:
        """A line."""
        self.say(_eval_line(record))


def _ranks(runtime: Runtime) -> int:
    """How many processes train."""
    place = torchrun_place()
    return runtime.cards if place is None else place.size


def _trained(training: Training, runtime: Runtime, listener: Listener) -> "FitResult":
    """By this process alone, by torchrun's, or by one a card that is started for it."""
    ranks, batch = _ranks(runtime), training.settings.batch
    if ranks > batch:
        listener.say(
            f"train.batch is {batch}: {ranks - batch} of {ranks} ranks have no window to "
            "train on, they only help to evaluate"
        )
    if ranks == 1:
        from nets.ranks import ALONE

        return run_training(training, runtime, listener, ALONE)
    if torchrun_place() is not None:
        from tasks.torchrun_ranks import train_with_others

        return train_with_others(training, runtime, listener)
    from tasks.card_ranks import train_on_cards

    return train_on_cards(training, runtime, listener)


def _eval_line(record: "EvalRecord") -> str:
    rates = " / ".join(f"{rate:.3f}" for rate in record.hold_rates)
    best = ", best so far" if record.is_best else ""
    return (
        f"  step {record.step}: {record.walk:.3f} drafts held by the walk, hold rates "
        f"{rates}, held-out KL {record.kl[0]:.3f}{best}"
    )


def _log_table(result: "FitResult") -> pa.Table:
    """A row a step, 0 first: loss, lr, norm; where evaluated KL by step, drafts held, 95 %.

    `kl` is that of the chain's first step, all of exact chains; `kind_kl_…` is that of each
    kind of input of `rows` and `stride` (`nets.jobs`), which `kind` counts from 1.
    """
    steps = {step.step: step for step in result.steps}
    evaluations = {evaluation.step: evaluation for evaluation in result.evaluations}
    start = result.start
    kl_names = [f"kl_{j}" for j in range(1, len(start.kl) + 1)]
    kind_names = [f"kind_kl_{j}" for j in range(1, len(start.kind_kl) + 1)]
    rows = []
    for number in sorted(steps.keys() | evaluations.keys()):
        step, evaluation = steps.get(number), evaluations.get(number)
        low, high = (evaluation and evaluation.walk_interval) or (None, None)
        rows.append(
            {
                "step": number,
                "loss": step.loss if step else None,
                "lr": step.lr if step else None,
                "grad_norm": step.grad_norm if step else None,
                "kl": evaluation.kl[0] if evaluation else None,
                "held": evaluation.walk if evaluation else None,
                "held_low": low,
                "held_high": high,
                "kind": step.kind + 1 if step and step.kind is not None else None,
                **dict(zip(kl_names, evaluation.kl if evaluation else (), strict=False)),
                **dict(
                    zip(kind_names, evaluation.kind_kl if evaluation else (), strict=False)
                ),
            }
        )
    evaluated = ("kl", "held", "held_low", "held_high", *kl_names, *kind_names)
    names = ("loss", "lr", "grad_norm", *evaluated)
    floats = [(name, pa.float64()) for name in names]
    whole = [(name, pa.int64()) for name in ("step", "kind")]
    return pa.Table.from_pylist(rows, schema=pa.schema([whole[0], *floats, whole[1]]))


def _numbers(result: "FitResult") -> dict[str, object]:
    start, best = result.start, result.best
    return {
        "steps": len(result.steps),
        "best_step": best.step,
        "skipped": result.skipped,
        "heldout_kl_start": list(start.kl),
        "heldout_kl_best": list(best.kl),
        "heldout_kind_kl_start": _mean(start.kind_kl),
        "heldout_kind_kl_best": _mean(best.kind_kl),
        "heldout_hold_start": list(start.hold_rates),
        "heldout_hold_best": list(best.hold_rates),
        "drafts_held_start": start.walk,
        "drafts_held_best": best.walk,
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


PACKED_SETTINGS = ("window", "split")
PACKED_NUMBERS = ("tokens", "windows")
TRAIN_SETTINGS = (
    *("layout", "stride", "refresh", "loss", "hard", "step_weights", "through_chain"),
    *("trainable", "select_by", "on_path", "anchors", "optimizer", "lr", "seed"),
)
TRAIN_NUMBERS = (
    "steps",
    "best_step",
    "heldout_kl_start",
    "heldout_kl_best",
    "heldout_kind_kl_start",
    "heldout_kind_kl_best",
    "heldout_hold_start",
    "heldout_hold_best",
)


def heal_provenance(
    trained: Artifact | None,
    measured: Artifact,
    windows: Artifact,
    rows: Artifact,
    init: ModelPart | None,
    wiring: Mapping[str, str],
) -> dict[str, Any]:
    """What a healed file says of its heal (healing.md §9): names, digests, no folders.

    Without training, what only that has is null; `measured` is the start's measure.
    """
    packed, deepest = windows.manifest, (trained or measured).manifest
    sets = zip(packed.settings["names"], packed.inputs["sets"], strict=True)
    return {
        "data": [{"name": name, "sha256": sha256} for name, sha256 in sets],
        **{name: packed.numbers[name] for name in PACKED_NUMBERS},
        **{name: packed.settings[name] for name in PACKED_SETTINGS},
        "isolate": rows.manifest.settings.get("isolate", False),
        "chain": deepest.settings["depth"],
        "wiring": dict(wiring),
        "topk": rows.manifest.settings["topk"],
        **_of_training(trained),
        "init": None if init is None else _named(init),
        "trunk": deepest.inputs["trunk"],
    }


def _of_training(trained: Artifact | None) -> dict[str, Any]:
    if trained is None:
        return dict.fromkeys((*TRAIN_SETTINGS, *TRAIN_NUMBERS))
    training = trained.manifest
    return {
        **{name: training.settings[name] for name in TRAIN_SETTINGS},
        **{name: training.numbers[name] for name in TRAIN_NUMBERS},
    }


def _named(part: ModelPart) -> dict[str, str]:
    return {"name": part.path.name, "sha256": part.content_digest}
