"""measure_draft: what a draft holds on held-out windows, by the walk and by all starts."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from conf.base import Settings, Wiring
from nets.hold import Held, HoldArrays, HoldMeasure, measure_holds
from store.arrays import Dtype, create_array, open_array
from store.artifact import Artifact
from store.manifest import Manifest
from tasks.drafts import DraftSource, load_draft
from tasks.model_file import ModelPart
from tasks.packed import Windows, read_windows
from tasks.stage import Runtime, stage
from tasks.trunk_rows import read_rows

if TYPE_CHECKING:
    from nets.evaluate import Evaluation


class MeasureSettings(Settings):
    """Wiring, chain depth, compute type, and the seed of the bootstrap."""

    wiring: Wiring
    depth: int
    dtype: Literal["bf16", "f32"]
    seed: int = 0


def _disk_bytes(settings: MeasureSettings, *, windows: Artifact, **_: object) -> int:
    """Two flags, four ids and four probabilities for every start and step."""
    held_out, width = windows.numbers["held_out"], windows.manifest.settings["window"]
    return int(held_out) * int(width) * settings.depth * (2 + 4 * 4 + 4 * 4)


def _expected(
    settings: MeasureSettings, past: Manifest | None, *, windows: Artifact, **_: object
) -> Mapping[str, object]:
    return {"windows": windows.numbers["held_out"], "depth": settings.depth}


@stage("measure_draft", version=1, needs=_disk_bytes, expects=_expected)
def measure_draft(  # noqa: PLR0913 — a stage's inputs, each with a digest of its own
    out: Path,
    settings: MeasureSettings,
    runtime: Runtime,
    *,
    windows: Artifact,
    rows: Artifact,
    trunk: ModelPart,
    draft: DraftSource,
) -> Mapping[str, object]:
    """Numbers: the measure (healing.md §7). Arrays [W, T, C]: `counted`, `hit`, …"""
    from nets.evaluate import evaluate
    from tasks.row_source import RowSource, chosen_windows, measure_compute

    setting = load_draft(trunk, draft, None, settings.wiring, settings.dtype, runtime)
    packed = read_windows(windows)
    compute = measure_compute(packed, settings.dtype, runtime)
    total = len(packed.held_out)
    done = 0
    with (
        runtime.stop.heeded(),
        runtime.progress.task("measuring", total=total, unit="windows") as bar,
    ):

        def on_windows(count: int) -> None:
            nonlocal done
            done += count
            bar.advance(count)
            if done < total:
                runtime.stop.check(f"after {done} of {total} windows, begun anew next time")

        found = evaluate(
            setting.draft,
            RowSource(packed, read_rows(rows, runtime)),
            chosen_windows(packed, packed.held_out),
            settings.depth,
            compute,
            on_windows=on_windows,
        )
    _save(out, found, packed)
    return numbers_of(found.arrays, packed.names, settings)


def _save(out: Path, found: "Evaluation", packed: Windows) -> None:
    arrays = found.arrays
    planes: dict[str, tuple[npt.NDArray[np.generic], Dtype]] = {
        "counted": (arrays.counted_WTC, "bool"),
        "hit": (arrays.hit_WTC, "bool"),
        "draft_top4_id": (found.top_id_WTC4.astype(np.uint32), "u4"),
        "draft_top4_p": (found.top_p_WTC4, "f4"),
        "window": (np.asarray(packed.held_out, np.uint32), "u4"),
        "length": (arrays.length_W.astype(np.uint32), "u4"),
        "set_index": (arrays.set_index_W.astype(np.uint32), "u4"),
    }
    for name, (values, dtype) in planes.items():
        create_array(out, name, values.shape, dtype, "packed")[:] = values


def read_holds(artifact: Artifact) -> HoldArrays:
    """The counts a measure rests on."""
    read = {
        name: open_array(artifact.path, name)[:]
        for name in ("counted", "hit", "length", "set_index")
    }
    return HoldArrays(
        read["counted"],
        read["hit"],
        read["length"].astype(np.int64),
        read["set_index"].astype(np.int64),
    )


def numbers_of(
    arrays: HoldArrays, names: tuple[str, ...], settings: MeasureSettings
) -> dict[str, Any]:
    """A measure as plain JSON: over all windows, and by data set."""
    by_set = {
        name: _one(measure_holds(arrays.of_set(index), settings.seed))
        for index, name in enumerate(names)
        if (arrays.set_index_W == index).any()
    }
    return {
        **_one(measure_holds(arrays, settings.seed)),
        "by_set": by_set,
        "depth": settings.depth,
    }


def _one(measure: HoldMeasure) -> dict[str, Any]:
    walk = measure.walk
    return {
        "drafts_held": walk.drafts_held,
        "drafts_held_starts": measure.starts.drafts_held,
        "interval": [walk.interval.low, walk.interval.high],
        "rows": walk.steps[0].counted,
        "windows": measure.windows,
        "coverage": measure.coverage,
        "hold_rates": _rates(walk),
    }


def _rates(held: Held) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "rate": rate.rate if rate.counted else None,
            "lo": rate.interval.low if rate.counted else None,
            "hi": rate.interval.high if rate.counted else None,
            "rows": rate.counted,
        }
        for step, rate in enumerate(held.steps, start=1)
    ]
