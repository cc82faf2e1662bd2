"""measure_draft: what a draft holds on held-out windows, by the walk and by all starts."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from conf.base import Settings, Wiring
from nets.hold import HoldArrays
from store.arrays import Dtype, create_array, open_array
from store.artifact import Artifact
from store.manifest import Manifest
from store.tables import write_table
from tasks.drafts import DraftSource, load_draft
from tasks.measure_chains import chains_json, sampled_windows
from tasks.measure_numbers import Measured, measured_json
from tasks.measure_sums import SUMS_TABLE, sums_table
from tasks.model_file import ModelPart
from tasks.packed import Packed, read_windows
from tasks.stage import Runtime, stage
from tasks.trunk_rows import read_rows
from tasks.vocabulary import trimmed_vocabularies

if TYPE_CHECKING:
    from nets.draft import Draft
    from nets.evaluate import Compute, Evaluation
    from tasks.row_source import RowSource


class MeasureSettings(Settings):
    """Wiring, chain depth, sampling temperatures, compute type, the bootstrap's seed.

    `written` is the temperature at which the trunk wrote each set, None for other text.
    """

    wiring: Wiring
    depth: int
    temperatures: tuple[float, ...]
    written: tuple[float | None, ...]
    dtype: Literal["bf16", "f32"]
    seed: int = 0


def _disk_bytes(settings: MeasureSettings, *, windows: Artifact, **_: object) -> int:
    """Two flags, a place, four ids and four probabilities for every start and step."""
    held_out, width = windows.numbers["held_out"], windows.manifest.settings["window"]
    return int(held_out) * int(width) * settings.depth * (3 + 4 * 4 + 4 * 4)


def _expected(
    settings: MeasureSettings, past: Manifest | None, *, windows: Artifact, **_: object
) -> Mapping[str, object]:
    return {"windows": windows.numbers["held_out"], "depth": settings.depth}


@stage("measure_draft", version=3, needs=_disk_bytes, expects=_expected, on_device=True)
def measure_draft(  # noqa: PLR0913 — a stage's inputs, each with a digest of its own
    out: Path,
    settings: MeasureSettings,
    runtime: Runtime,
    *,
    windows: Artifact,
    rows: Artifact,
    trunk: ModelPart,
    draft: DraftSource,
    init: DraftSource | None,
) -> Mapping[str, object]:
    """Numbers: the measure (healing.md §7). Arrays [W, T, C]: `counted`, `hit`, …; sums.

    `init`, if given, replaces the draft's block and output norm.
    """
    from tasks.row_source import RowSource, measure_compute

    loaded = load_draft(trunk, draft, init, settings.wiring, settings.dtype, runtime)
    packed = read_windows(windows)
    source = RowSource(packed, read_rows(rows, runtime))
    compute = measure_compute(packed, settings.dtype, runtime)
    found = _evaluated(loaded, source, settings, compute, runtime)
    _save(out, found, packed)
    measured = Measured(
        found.arrays, found.place_WTC, found.acceptance_WCN4, settings.temperatures
    )
    write_table(out / SUMS_TABLE, sums_table(measured, packed.held_out))
    vocab = len(loaded.shared.head_VH)
    return {
        **measured_json(measured, packed.names, settings.seed),
        "sampled_chains": _sampled_chains(loaded, source, settings, compute),
        "vocabulary": trimmed_vocabularies(packed, source.rows, vocab),
    }


def _evaluated(
    draft: "Draft",
    source: "RowSource",
    settings: MeasureSettings,
    compute: "Compute",
    runtime: Runtime,
) -> "Evaluation":
    """What the chains of every held-out window do; Stopped between batches, if asked."""
    from nets.evaluate import evaluate
    from tasks.row_source import chosen_windows

    windows = chosen_windows(source.packed, source.packed.held_out)
    total = len(windows.index)
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

        return evaluate(
            draft,
            source,
            windows,
            settings.depth,
            compute,
            temperatures=settings.temperatures,
            on_windows=on_windows,
        )


def _sampled_chains(
    draft: "Draft", source: "RowSource", settings: MeasureSettings, compute: "Compute"
) -> list[dict[str, Any]]:
    """What whole chains hold on text the trunk sampled, one line a temperature."""
    from nets.sampled_chains import sampled_chains
    from tasks.row_source import chosen_windows

    told = []
    by_temperature = sampled_windows(source.packed, settings.written)
    for temperature, index in by_temperature.items():
        windows = chosen_windows(source.packed, index)
        found = sampled_chains(draft, source, windows, settings.depth, compute, temperature)
        told.append(chains_json(found, temperature, settings.seed))
    return told


def _save(out: Path, found: "Evaluation", packed: Packed) -> None:
    arrays = found.arrays
    planes: dict[str, tuple[npt.NDArray[np.generic], Dtype]] = {
        "counted": (arrays.counted_WTC, "bool"),
        "hit": (arrays.hit_WTC, "bool"),
        "place": (found.place_WTC, "u1"),
        "draft_top4_id": (found.top_id_WTC4.astype(np.uint32), "u4"),
        "draft_top4_p": (found.top_p_WTC4, "f4"),
        "window": (np.asarray(packed.held_out, np.uint32), "u4"),
        "length": (arrays.length_W.astype(np.uint32), "u4"),
        "set_index": (arrays.set_index_W.astype(np.uint32), "u4"),
    }
    for name, (values, dtype) in planes.items():
        create_array(out, name, values.shape, dtype, "packed")[:] = values


def read_holds(artifact: Artifact) -> HoldArrays:
    """The counts a measure rests on, but not which records were apart: no coverage."""
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
