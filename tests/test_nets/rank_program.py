"""One of two ranks: `rank_program.py RANK FOLDER` trains every case, writes what came out.

All cases share one pair of processes: importing torch takes longer than they do.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from conf.base import RAW
from conf.training import TrainSettings
from nets.draft import Draft
from nets.errors import TrainingError
from nets.fit_state import FitFacts, FitState
from nets.ranks import ALONE, Ranks, joined, meeting_in
from nets.source import Windows
from nets.training import FitResult, FitRuntime, FitWindows, fit
from tests.builders import tiny_qwen3
from tests.test_nets.chain_source import draft_of, jitter, own_windows
from tests.test_nets.test_training import with_bad_windows

WIDTH = 16
BASE = TrainSettings(
    wiring=RAW,
    depth=2,
    trainable="block",
    lr=2e-3,
    steps=6,
    batch=3,
    eval_every=2,
    patience=None,
    dtype="f32",
)
CASES: Mapping[str, Mapping[str, object]] = {
    "unequal": {"trainable": "all", "anchors": 0.5, "on_path": True},
    "rows": {"layout": "rows", "refresh": 2, "batch": 2},
    "fewer": {"batch": 1},  # windows than ranks: one of them has none
}
WINDOWS = FitWindows(tuple(range(9)), Windows((9, 10, 11, 12), (0, 0, 1, 1)))


@dataclass(frozen=True)
class Found:
    """What a rank's run came to."""

    result: FitResult
    draft: Draft
    states: list[FitState]


def settings_of(case: str) -> TrainSettings:
    return TrainSettings.model_validate(BASE.model_dump() | dict(CASES[case]))


def train(case: str, ranks: Ranks = ALONE, resume: FitState | None = None) -> Found:
    """The case's run from a stale draft; its windows 4 has no finite loss."""
    model, states = tiny_qwen3(), list[FitState]()
    source = with_bad_windows(
        own_windows(draft_of(model), [WIDTH] * 12 + [WIDTH - 3], WIDTH, strange=0.05), 4
    )
    draft = jitter(draft_of(model), 0.3)
    runtime = FitRuntime(
        1, save=states.append, save_every_s=0.0, resume=resume, ranks=ranks
    )
    return Found(fit(draft, source, WINDOWS, settings_of(case), runtime), draft, states)


def write_state(state: FitState, folder: Path) -> None:
    folder.mkdir()
    save_file(dict(state.tensors), folder / "state.safetensors")
    (folder / "facts.json").write_text(state.facts.model_dump_json())


def read_state(folder: Path) -> FitState:
    facts = FitFacts.model_validate_json((folder / "facts.json").read_text())
    return FitState(load_file(folder / "state.safetensors"), facts)


def write(found: Found, folder: Path) -> None:
    """The log, the weights, and the checkpoint after step 3 where it saved any."""
    folder.mkdir()
    said = {
        "steps": [record.model_dump() for record in found.result.steps],
        "evaluations": [record.model_dump() for record in found.result.evaluations],
        "skipped": found.result.skipped,
        "saved": len(found.states),
    }
    (folder / "said.json").write_text(json.dumps(said))
    save_file(found.draft.tensors(), folder / "draft.safetensors")
    if found.states:
        write_state(found.states[2], folder / "state")


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    own = folder / str(rank)
    own.mkdir()
    with joined(Ranks(rank, 2), meeting_in(folder / "meeting", 2), None) as ranks:
        for case in CASES:
            write(train(case, ranks), own / case)
        resumed = train("unequal", ranks, read_state(folder / "alone"))
        write(resumed, own / "resumed")
        try:
            ranks.refuse_unlike(f"seed {rank}")
        except TrainingError as error:
            (own / "unlike").write_text(str(error))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
