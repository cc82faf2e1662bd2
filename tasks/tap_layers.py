"""tap_layers: rows of chosen trunk layers on the held-out windows (healing.md §5).

For draft models built elsewhere: what these layers hand on, before any norm, with the ids
and the trunk's own choices beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from conf.base import Settings
from conf.schema import TapsConfig
from store.arrays import create_array
from store.artifact import Artifact
from store.manifest import Manifest
from tasks.errors import InputError
from tasks.model_file import ModelPart, open_part
from tasks.packed import Packed, read_windows
from tasks.placed_trunk import PlacedTrunk, placed_trunk
from tasks.planning import is_pending
from tasks.stage import Runtime, stage
from tasks.trunk_rows import TrunkRows, read_rows

if TYPE_CHECKING:
    import torch

    from nets.stream import Call

F16_MOST = float(np.finfo(np.float16).max)


class TapSettings(Settings):
    """Which layers, counted from 0, in the order they are stored; the compute type."""

    layers: tuple[int, ...]
    dtype: Literal["bf16", "f32"]


def refuse_absent_layers(taps: TapsConfig | None, trunk: ModelPart) -> None:
    """InputError for a layer that the trunk does not have."""
    if taps is None or is_pending(trunk):
        return
    with open_part(trunk) as model:
        count = model.header.arch.num_layers
    absent = [layer for layer in taps.layers if layer >= count]
    if absent:
        raise InputError(
            f"taps.layers names {', '.join(map(str, absent))}: {trunk.path} has {count} "
            f"layers, counted from 0; name layers up to {count - 1}"
        )


def _disk_bytes(
    settings: TapSettings, *, windows: Artifact, trunk: ModelPart, **_: object
) -> int:
    with open_part(trunk) as model:
        width = model.header.arch.hidden_size
    rows = int(windows.numbers["held_out"]) * int(windows.manifest.settings["window"])
    return rows * (len(settings.layers) * width * 2 + 4 + 4)


def _expected(
    settings: TapSettings, past: Manifest | None, *, windows: Artifact, **_: object
) -> Mapping[str, object]:
    return {"windows": windows.numbers["held_out"], "layers": list(settings.layers)}


@stage("tap_layers", version=1, needs=_disk_bytes, expects=_expected, on_device=True)
def tap_layers(
    out: Path,
    settings: TapSettings,
    runtime: Runtime,
    *,
    windows: Artifact,
    rows: Artifact,
    trunk: ModelPart,
) -> Mapping[str, object]:
    """`taps` [W, L, T, H] f16, `ids` and `own` [W, T], `length` and `window` [W].

    `own` is the trunk's own choice after each row, from the trunk pass. All held-out
    windows, every row of them; padding is zero.
    """
    held = _HeldOut(read_windows(windows), read_rows(rows, runtime))
    with open_part(trunk) as model:
        hidden = model.header.arch.hidden_size
    total, width = len(held.index), held.packed.ids.shape[1]
    shape = (total, len(settings.layers), width, hidden)
    taps = create_array(out, "taps", shape, "f2", "raw")
    with (
        runtime.stop.heeded(),
        runtime.progress.task("tapping layers", total=total, unit="windows") as bar,
        placed_trunk(trunk, settings.dtype, width, runtime) as placed,
    ):
        # Each layer's rows are held beside those on their way, twice for a moment.
        most = max(1, placed.most_calls // (1 + 2 * len(settings.layers)))
        for start in range(0, total, most):
            runtime.stop.check(f"after {start} of {total} windows, begun anew next time")
            chosen = held.index[start : start + most]
            for place, rows_LTH in enumerate(_tapped(placed, held, chosen, settings)):
                taps[start + place] = rows_LTH
            bar.advance(len(chosen))
    held.save(out)
    return {"windows": total, "layers": list(settings.layers)}


@dataclass(frozen=True)
class _HeldOut:
    """The held-out windows and what the trunk pass says of them."""

    packed: Packed
    rows: TrunkRows

    @property
    def index(self) -> list[int]:
        return self.packed.held_out

    def call(self, window: int) -> "Call":
        """What the trunk reads of one window, records apart if they are in the pass."""
        import torch

        from nets.stream import Call

        one, packed = slice(window, window + 1), self.packed
        ids = torch.from_numpy(packed.ids[one].astype(np.int64))
        record = torch.from_numpy(packed.record[one]) if self.rows.is_isolated else None
        return Call(ids, record)

    def save(self, out: Path) -> None:
        """Everything beside the tapped rows."""
        own = [self.rows.read("topk_id", window)[:, 0] for window in self.index]
        planes: dict[str, npt.NDArray[np.generic]] = {
            "ids": self.packed.ids[self.index],
            "own": np.stack(own),
            "length": self.packed.length[self.index],
            "window": np.asarray(self.index),
        }
        for name, values in planes.items():
            create_array(out, name, values.shape, "u4", "packed")[:] = values.astype("u4")


def _tapped(
    placed: PlacedTrunk, held: _HeldOut, windows: Sequence[int], settings: TapSettings
) -> list[npt.NDArray[np.float16]]:
    """Each window's rows [L, T, H], padding zero; InputError where f16 cannot hold one."""
    from nets.taps import tap_rows

    calls = [held.call(window) for window in windows]
    tapped = tap_rows(placed.trunk, calls, settings.layers)
    return [
        _as_f16(rows_BLTH[0], int(held.packed.length[window]), window, settings)
        for window, rows_BLTH in zip(windows, tapped, strict=True)
    ]


def _as_f16(
    rows_LTH: "torch.Tensor", length: int, window: int, settings: TapSettings
) -> npt.NDArray[np.float16]:
    import torch

    rows_LTH[:, length:] = 0
    most_LT = rows_LTH.abs().amax(-1).cpu().numpy()
    too_large = np.argwhere(~(most_LT <= F16_MOST))  # what isn't a number too
    if len(too_large):
        layer, row = (int(i) for i in too_large[0])
        raise InputError(
            f"taps: layer {settings.layers[layer]} gives {most_LT[layer, row]:,.0f} at row "
            f"{row} of window {window}, f16 ends at {F16_MOST:,.0f}; leave it out of "
            "taps.layers"
        )
    found: npt.NDArray[np.float16] = rows_LTH.to(torch.float16).cpu().numpy()
    return found
