"""probe_draft: which wiring a shipped draft was made for, from a few windows' rows.

And sample_windows, which takes these: a probe comes before the long pass over all.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from conf.base import Settings, Wiring
from nets.hold import on_path
from store.artifact import Artifact
from store.manifest import Manifest
from store.tables import read_table, write_table
from tasks.drafts import DraftSource, load_draft
from tasks.errors import InputError
from tasks.model_file import ModelPart
from tasks.packed import TABLE, Packed, read_windows
from tasks.stage import Runtime, stage
from tasks.trunk_rows import read_rows

if TYPE_CHECKING:
    from nets.wiring import Found, ReadingLine

LEAST_WINDOWS = 2


class SampleSettings(Settings):
    """How many windows are taken, and what readers of windows want to know of them."""

    windows: int
    window: int
    names: tuple[str, ...]
    pad: int


def _sample_numbers(
    settings: SampleSettings, past: Manifest | None, **_: object
) -> Mapping[str, object]:
    tokens = settings.windows * settings.window
    return {"windows": settings.windows, "held_out": 0, "tokens": tokens}


@stage("sample_windows", version=2, expects=_sample_numbers)
def sample_windows(
    out: Path, settings: SampleSettings, runtime: Runtime, *, windows: Artifact
) -> Mapping[str, object]:
    """Training windows, evenly spaced over all sets, as `pack_windows` writes them.

    Of held-out ones where every window is. Each text once: a copy tells nothing more, and
    intervals that count it are too narrow.
    """
    packed = read_windows(windows)
    chosen = _spaced(packed.unlike(packed.training or packed.held_out), settings.windows)
    if len(chosen) < LEAST_WINDOWS:
        raise InputError(
            f"data: {len(chosen)} windows to probe, copies left out; a probe of the "
            f"draft compares {LEAST_WINDOWS} at least, give more data or a smaller "
            "pack.window"
        )
    table = read_table(windows.path / TABLE).take(chosen)
    write_table(out / TABLE, table)
    lengths = table.column("ids").combine_chunks().value_lengths().to_pylist()
    return {"windows": len(chosen), "held_out": 0, "tokens": sum(lengths)}


def _spaced(places: Sequence[int], most: int) -> list[int]:
    count = min(most, len(places))
    return [places[i * len(places) // count] for i in range(count)]


class ProbeSettings(Settings):
    """Chain depth, compute type, and the wiring to take where several are as good."""

    depth: int
    dtype: Literal["bf16", "f32"]
    convention: Wiring


def _supposed(
    settings: ProbeSettings, past: Manifest | None, **_: object
) -> Mapping[str, object]:
    """A plan supposes that the draft is wired as its format has it."""
    return {"outcome": "clear", "wiring": settings.convention.model_dump()}


@stage("probe_draft", version=2, expects=_supposed, on_device=True)
def probe_draft(  # noqa: PLR0913 — a stage's inputs, each with a digest of its own
    out: Path,
    settings: ProbeSettings,
    runtime: Runtime,
    *,
    windows: Artifact,
    rows: Artifact,
    trunk: ModelPart,
    draft: DraftSource,
    init: DraftSource | None,
) -> Mapping[str, object]:
    """Numbers: the table of readings and controls, and what it comes to (healing.md §3)."""
    from nets.probe import probe_readings
    from nets.wiring import compare_readings
    from tasks.row_source import RowSource, measure_compute

    packed = read_windows(windows)
    shipped = load_draft(trunk, draft, init, settings.convention, settings.dtype, runtime)
    source, total = RowSource(packed, read_rows(rows, runtime)), len(packed.length)
    with (
        runtime.stop.heeded(),
        runtime.progress.task("probing the draft", total=total, unit="windows") as bar,
    ):

        def on_windows(count: int) -> None:
            bar.advance(count)
            runtime.stop.check("in the probe of the draft, begun anew next time")

        choices = probe_readings(
            shipped,
            source,
            range(total),
            settings.depth,
            measure_compute(packed, settings.dtype, runtime),
            on_windows=on_windows,
        )
    found = compare_readings(choices, settings.convention)
    return {
        "windows": total,
        "coverage": _coverage(packed, choices.top1_WT, is_isolated=source.rows.is_isolated),
        **_numbers(found),
    }


def _coverage(
    packed: Packed, top1_WT: npt.NDArray[np.int64], *, is_isolated: bool
) -> dict[str, float]:
    """By data set: the share of rows that can count, as the sample has it."""
    record = packed.record if is_isolated else None
    ids = packed.ids.astype(np.int64)
    counted_WTC = on_path(ids, top1_WT, packed.length, 1, record)
    records_W = packed.record.max(1) + 1 if is_isolated else np.ones(len(ids), np.int64)
    rows_W = np.maximum(packed.length - records_W, 0)
    return {
        name: float(counted_WTC[of].sum() / max(1, rows_W[of].sum()))
        for index, name in enumerate(packed.names)
        if (of := packed.set_index == index).any()
    }


def _numbers(found: "Found") -> dict[str, Any]:
    wiring = None if found.reading is None else found.reading.wiring.model_dump()
    return {
        "outcome": found.outcome,
        "wiring": wiring,
        "readings": [_line(line) for line in found.lines],
        "controls": [
            {"name": c.name, "agreement": c.rate_C, "low": c.low_C} for c in found.controls
        ],
        "chance": found.chance_C,
        "rows": found.rows_C,
    }


def _line(line: "ReadingLine") -> dict[str, Any]:
    reading = line.reading
    return {
        **reading.wiring.model_dump(),
        "order": reading.order,
        "agreement": line.rate_C,
        "drafts": line.drafts,
        "behind": [line.behind.low, line.behind.high],
    }
