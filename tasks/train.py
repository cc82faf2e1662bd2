"""train_draft: a draft trained on its trunk's rows; resumable (healing.md §8)."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from conf.training import TrainSettings
from store.artifact import Artifact
from store.manifest import Manifest
from store.tables import write_table
from tasks.drafts import DraftSource, draft_bytes, load_draft, write_draft_tensors
from tasks.model_file import ModelPart
from tasks.packed import read_windows
from tasks.stage import Runtime, stage
from tasks.trunk_rows import read_rows

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


@stage("train_draft", version=1, needs=_disk_bytes, expects=_expected)
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
) -> Mapping[str, object]:
    """`draft.safetensors` (f32, the best checkpoint), the log; numbers: steps, held, KL."""
    from nets.training import FitRuntime, FitWindows, fit
    from tasks.checkpoint import Checkpoint
    from tasks.row_source import RowSource, chosen_windows

    setting = load_draft(trunk, draft, init, settings.wiring, settings.dtype, runtime)
    packed = read_windows(windows)
    checkpoint = Checkpoint(out, runtime.progress.say)
    resume = checkpoint.load()
    done = 0 if resume is None else len(resume.facts.steps)
    each = {"tokens": settings.batch * float(packed.length[packed.training].mean())}
    with (
        runtime.stop.heeded(),
        runtime.progress.task(
            "training", total=settings.steps, unit="steps", each=each
        ) as bar,
    ):
        bar.skip(done)

        def on_step(step: "StepRecord") -> None:
            bar.advance(1, loss=step.loss, lr=step.lr)

        def on_eval(evaluation: "EvalRecord") -> None:
            runtime.progress.say(_eval_line(evaluation))

        result = fit(
            setting.draft,
            RowSource(packed, read_rows(rows, runtime)),
            FitWindows(tuple(packed.training), chosen_windows(packed, packed.held_out)),
            settings,
            FitRuntime(
                runtime.head_budget_bytes,
                on_step,
                on_eval,
                checkpoint.save,
                SAVE_EVERY_S,
                resume,
                runtime.stop.is_set,
            ),
        )
    write_draft_tensors(out, setting.draft.tensors())
    write_table(out / LOG_TABLE, _log_table(result))
    return _numbers(result)


def _eval_line(record: "EvalRecord") -> str:
    rates = " / ".join(f"{rate:.3f}" for rate in record.hold_rates)
    best = ", best so far" if record.is_best else ""
    return (
        f"  step {record.step}: {record.walk:.3f} drafts held by the walk, hold rates "
        f"{rates}, held-out KL {record.kl[0]:.3f}{best}"
    )


def _log_table(result: "FitResult") -> pa.Table:
    """A row a step, 0 first: loss, lr, norm; KL and drafts held where evaluated."""
    steps = {step.step: step for step in result.steps}
    evaluations = {evaluation.step: evaluation for evaluation in result.evaluations}
    rows = []
    for number in sorted(steps.keys() | evaluations.keys()):
        step, evaluation = steps.get(number), evaluations.get(number)
        rows.append(
            {
                "step": number,
                "loss": step.loss if step else None,
                "lr": step.lr if step else None,
                "grad_norm": step.grad_norm if step else None,
                "kl": evaluation.kl[0] if evaluation else None,
                "held": evaluation.walk if evaluation else None,
            }
        )
    floats = [(name, pa.float64()) for name in ("loss", "lr", "grad_norm", "kl", "held")]
    return pa.Table.from_pylist(rows, schema=pa.schema([("step", pa.int64()), *floats]))


def _numbers(result: "FitResult") -> dict[str, object]:
    start, best = result.start, result.best
    return {
        "steps": len(result.steps),
        "best_step": best.step,
        "skipped": result.skipped,
        "heldout_kl_start": list(start.kl),
        "heldout_kl_best": list(best.kl),
        "heldout_hold_start": list(start.hold_rates),
        "heldout_hold_best": list(best.hold_rates),
        "drafts_held_start": start.walk,
        "drafts_held_best": best.walk,
    }


PACKED_SETTINGS = ("window", "split")
PACKED_NUMBERS = ("tokens", "windows")
TRAIN_SETTINGS = ("trainable", "select_by", "on_path", "anchors", "lr", "seed")
TRAIN_NUMBERS = (
    "steps",
    "best_step",
    "heldout_kl_start",
    "heldout_kl_best",
    "heldout_hold_start",
    "heldout_hold_best",
)


def heal_provenance(
    trained: Artifact,
    windows: Artifact,
    rows: Artifact,
    init: ModelPart | None,
    wiring: Mapping[str, str],
) -> dict[str, Any]:
    """What a healed file says of its heal (healing.md §9): names, digests, no folders.

    `stride` and `hard` are the reference's words for what this layout and loss don't have.
    """
    packed, training = windows.manifest, trained.manifest
    sets = zip(packed.settings["names"], packed.inputs["sets"], strict=True)
    return {
        "data": [{"name": name, "sha256": sha256} for name, sha256 in sets],
        **{name: packed.numbers[name] for name in PACKED_NUMBERS},
        **{name: packed.settings[name] for name in PACKED_SETTINGS},
        "isolate": rows.manifest.settings.get("isolate", False),
        "chain": training.settings["depth"],
        "layout": "exact",
        "stride": None,
        "wiring": dict(wiring),
        "loss": "tail_kl",
        "hard": 0.0,
        "topk": rows.manifest.settings["topk"],
        **{name: training.settings[name] for name in TRAIN_SETTINGS},
        **{name: training.numbers[name] for name in TRAIN_NUMBERS},
        "init": None if init is None else _named(init),
        "trunk": training.inputs["trunk"],
    }


def _named(part: ModelPart) -> dict[str, str]:
    return {"name": part.path.name, "sha256": part.content_digest}
