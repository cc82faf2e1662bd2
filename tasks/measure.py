"""measure_draft: what a draft holds on held-out windows, by the walk and by all starts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from conf.base import Settings, Wiring
from nets.hold import HoldArrays
from store.arrays import Dtype, create_array, open_array
from store.artifact import Artifact
from store.manifest import Manifest
from store.tables import write_table
from tasks.drafts import DraftSetting, DraftSource, load_draft
from tasks.measure_chains import chains_json, sampled_windows
from tasks.measure_numbers import Measured, measured_json
from tasks.measure_sums import SUMS_TABLE, sums_table
from tasks.model_file import ModelPart
from tasks.packed import Windows, read_windows
from tasks.stage import Runtime, stage
from tasks.trunk_rows import TrunkRows, read_rows
from tasks.vocabulary import trimmed_vocabularies

if TYPE_CHECKING:
    from nets.evaluate import Compute, Evaluation


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
    from nets.evaluate import evaluate
    from tasks.row_source import RowSource, chosen_windows, measure_compute

    setting = load_draft(trunk, draft, init, settings.wiring, settings.dtype, runtime)
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

        read = read_rows(rows, runtime)
        found = evaluate(
            setting.draft,
            RowSource(packed, read),
            chosen_windows(packed, packed.held_out),
            settings.depth,
            compute,
            temperatures=settings.temperatures,
            on_windows=on_windows,
        )
    _save(out, found, packed)
    told = _Told(setting, packed, read, compute, settings)
    write_table(out / SUMS_TABLE, sums_table(told.measured(found), packed.held_out))
    return told.numbers(found)


@dataclass(frozen=True)
class _Told:
    """What the numbers of a measure are made from, beside what was found."""

    setting: DraftSetting
    packed: Windows
    read: TrunkRows
    compute: "Compute"
    settings: MeasureSettings

    def numbers(self, found: "Evaluation") -> dict[str, object]:
        """As docs/stages.md lists them."""
        settings, vocab = self.settings, self.setting.shared.head_VH.shape[0]
        by_temperature = sampled_windows(self.packed, settings.written)
        return {
            **measured_json(self.measured(found), self.packed.names, settings.seed),
            "sampled_chains": [self._chains(t, w) for t, w in by_temperature.items()],
            "vocabulary": trimmed_vocabularies(self.packed, self.read, vocab),
        }

    def measured(self, found: "Evaluation") -> Measured:
        """What the numbers and the sums by window are made from."""
        temperatures = self.settings.temperatures
        return Measured(found.arrays, found.place_WTC, found.acceptance_WCN4, temperatures)

    def _chains(self, temperature: float, windows: list[int]) -> dict[str, object]:
        from nets.sampled_chains import sampled_chains
        from tasks.row_source import RowSource, chosen_windows

        found = sampled_chains(
            self.setting.draft,
            RowSource(self.packed, self.read),
            chosen_windows(self.packed, windows),
            self.settings.depth,
            self.compute,
            temperature,
        )
        return chains_json(found, temperature, self.settings.seed)


def _save(out: Path, found: "Evaluation", packed: Windows) -> None:
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
