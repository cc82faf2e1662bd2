"""A report of the demo's shape, made by formulas, for the tests and for looking at."""

import math
from datetime import UTC, datetime
from typing import Literal

from ui.contents import (
    CodecRow,
    Difference,
    DraftName,
    Measure,
    Probe,
    ProbeControl,
    ProbeReading,
    Rate,
    Report,
    SetMeasure,
    StageRow,
    Training,
    TrainingRow,
)

CONFIG = """\
student: demo/folded.cmf
data:
  - path: stdlib/**/*.py
    tokens: 393216
    name: code
  - path: pydoc_data/topics.py
    tokens: 393216
    name: prose
pack: {window: 128, split: records}
trunk: {topk: 64, dtype: auto, shard_windows: 16}
train:
  depth: 3
  trainable: block
  lr: 0.002
  steps: 120
  batch: 8
  eval_every: 20
  select_by: walk
outputs:
  - {codec: keep, path: out/healed-keep.cmf}
  - {codec: q8_row, path: out/healed-q8_row.cmf}
  - {codec: q4_tiled, path: out/healed-q4_tiled.cmf}
"""

Side = Literal["raw", "normed"]
HELD: dict[DraftName, tuple[float, float]] = {
    "source": (2.11, 1.92),
    "stale": (1.01, 1.28),
    "healed": (2.05, 1.96),
    "control": (0.98, 1.25),
    "fresh": (1.44, 1.31),
}


def rates(held: float, rows: int, depth: int = 3) -> tuple[Rate, ...]:
    """Rates that fall a little by step, with binomial intervals."""
    found, alive = [], float(rows)
    first = 0.35 + held / 5.5
    for step in range(1, depth + 1):
        rate = min(first - 0.03 * (step - 1), 1.0)
        half = 1.96 * math.sqrt(rate * (1 - rate) / alive)
        found.append(
            Rate(
                step=step,
                rate=rate,
                lo=max(rate - half, 0),
                hi=min(rate + half, 1),
                rows=int(alive),
            )
        )
        alive *= rate
    return tuple(found)


def set_measure(held: float, rows: int, windows: int, coverage: float = 0.41) -> SetMeasure:
    half = 2.2 / math.sqrt(rows)
    return SetMeasure(
        drafts_held=held,
        drafts_held_starts=held + 0.11,
        interval=(held - half, held + half),
        rows=rows,
        windows=windows,
        coverage=coverage,
        hold_rates=rates(held, rows),
    )


def measure(code: float, prose: float, coverage: float = 0.41) -> Measure:
    # A draft that holds more makes fewer rounds of the same text.
    code_rows, prose_rows = round(9_800 / (1 + code)), round(8_900 / (1 + prose))
    by_set = {
        "code": set_measure(code, code_rows, 151, coverage),
        "prose": set_measure(prose, prose_rows, 139, coverage - 0.03),
    }
    whole = set_measure((code + prose) / 2, code_rows + prose_rows, 290, coverage - 0.01)
    return Measure(**dict(whole), by_set=by_set)


def training(steps: int = 120, every: int = 20, chosen: int = 100) -> Training:
    rows = [TrainingRow(step=0, kl=2.31, held=1.14)]
    for step in range(1, steps + 1):
        warm = min(step / 12, 1.0)
        lr = 2e-3 * warm * (0.1 + 0.45 * (1 + math.cos(math.pi * step / steps)))
        loss = 0.9 + 1.6 * math.exp(-step / 30) + 0.12 * math.sin(step * 2.7)
        seen = step % every == 0
        rows.append(
            TrainingRow(
                step=step,
                loss=loss,
                lr=lr,
                grad_norm=0.6 + 2 / step,
                kl=0.88 + 1.43 * math.exp(-step / 32) if seen else None,
                held=2.02 - 0.88 * math.exp(-step / 26) - (0.01 if step > chosen else 0)
                if seen
                else None,
            )
        )
    return Training(rows=tuple(rows), chosen_step=chosen)


def codecs(held: float = 2.005) -> tuple[CodecRow, ...]:
    plan = (
        ("keep", 1_183_488, 0.0, 0.0),
        ("q8_row", 598_272, -0.004, 0.006),
        ("q4_tiled", 316_416, -0.061, 0.011),
    )
    return tuple(
        CodecRow(
            codec=codec,
            draft_bytes=size,
            file_bytes=2_750_000 + size,
            drafts_held=held + change,
            interval=(held + change - 0.03, held + change + 0.03),
            to_keep=None
            if codec == "keep"
            else Difference(value=change, se=se, windows=290),
        )
        for codec, size, change, se in plan
    )


def probe() -> Probe:
    """What the probe of SmolLM2's stale draft said, four of its eight readings."""
    plan: tuple[tuple[Side, Side, tuple[float, ...], tuple[float, float]], ...] = (
        ("raw", "raw", (0.468, 0.417, 0.401), (0.0, 0.0)),
        ("normed", "raw", (0.418, 0.415, 0.392), (0.018, 0.105)),
        ("raw", "normed", (0.468, 0.381, 0.365), (0.026, 0.121)),
        ("normed", "normed", (0.418, 0.368, 0.345), (0.088, 0.223)),
    )
    return Probe(
        hidden="raw",
        chain="raw",
        outcome="clear",
        readings=tuple(
            ProbeReading(
                hidden=hidden,
                chain=chain,
                order="emb_hid",
                agreement=rates,
                drafts=sum(rates),
                behind=behind,
            )
            for hidden, chain, rates, behind in plan
        ),
        controls=(
            ProbeControl(name="shifted", agreement=(0.039, 0.05, 0.047), low=(0.02,) * 3),
            ProbeControl(name="foreign", agreement=(0.011, 0.015, 0.015), low=(0.0,) * 3),
        ),
        chance=(0.116, 0.116, 0.115),
        rows=(1020, 1016, 1012),
        windows=4,
    )


def stages() -> tuple[StageRow, ...]:
    plan = (
        ("train_lm", "cached", 0.02, "source trunk"),
        ("fold_model", "cached", 0.01, "folded"),
        ("pack_windows", "cached", 0.03, "code, prose"),
        ("trunk_pass", "cached", 0.11, "12 shards"),
        ("train_draft", "resumed", 38.4, "healed"),
        ("rewrite_model", "ran", 0.6, "healed q8_row"),
        ("measure_draft", "ran", 4.2, "healed q8_row"),
    )
    return tuple(
        StageRow(
            name=name,
            key=f"{i:x}" * 8 + "9a4be01f77c2d3e5",
            state=state,
            seconds=s,
            label=label,
        )
        for i, (name, state, s, label) in enumerate(plan, 1)
    )


def sample_report(**changes: object) -> Report:
    """The demo after a clear heal; `changes` replace whole fields."""
    report = Report(
        title="demo, folded",
        made=datetime(2026, 12, 1, 20, 18, tzinfo=UTC),
        run="3c9e71",
        depth=3,
        measures={name: measure(*held) for name, held in HELD.items()},
        gain=Difference(value=0.86, se=0.0224, windows=290),
        gain_by_set={
            "code": Difference(value=1.04, se=0.031, windows=151),
            "prose": Difference(value=0.68, se=0.029, windows=139),
        },
        training=training(),
        probe=probe(),
        codecs=codecs(),
        provenance={
            "data": [
                {"name": "code", "sha256": "ab12" * 16},
                {"name": "prose", "sha256": "cd34" * 16},
            ],
            "tokens": 371_200,
            "windows": 2_900,
            "chain": 3,
            "layout": "exact",
            "wiring": {"hidden": "raw", "chain": "raw"},
            "trainable": "block",
            "loss": "tail_kl",
            "split": "records",
            "select_by": "walk",
            "steps": 120,
            "best_step": 100,
            "lr": 0.002,
            "topk": 64,
            "heldout_kl_start": 2.31,
            "heldout_kl_best": 0.9428,
            "init": None,
            "trunk": "7a1e" * 16,
        },
        command="heal run conf/demo.yaml --set train.lr=0.002",
        config=CONFIG,
        stages=stages(),
        machine={"machine": "2 cores, no GPU", "versions": "mtp-heal 0.1.0, torch 2.7.1"},
    )
    return report.model_copy(update=changes)
