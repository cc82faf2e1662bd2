"""One window of an array, read from the one chunk that holds it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from store.arrays import open_array
from store.artifact import Artifact
from store.manifest import ArrayInfo
from ui.inspector.depot import Damaged, Depot, NotHere

Values = npt.NDArray[np.generic]


@dataclass(frozen=True)
class WholeArray:
    """An array over all windows, wherever its shards lie; `windows_each` in a shard."""

    name: str
    info: ArrayInfo
    shards: tuple[str, ...]  # "stage/key", in window order
    windows_each: int
    is_bf16: bool

    @property
    def windows(self) -> int:
        """How many there are."""
        return self.info.shape[0]

    @property
    def dtype(self) -> str:
        """What the values are, not how they are stored."""
        return "bf16, stored as uint16" if self.is_bf16 else self.info.dtype


def whole_arrays(depot: Depot, artifact: Artifact) -> dict[str, WholeArray]:
    """An artifact's arrays by name; a pass has those of its shards, joined."""
    own = artifact.manifest
    if own.arrays or not own.parts:
        return {n: _one(artifact, n, info) for n, info in own.arrays.items()}
    first = depot.find(own.parts[0])
    each, total = own.settings.get("shard_windows"), own.settings.get("windows")
    if not isinstance(each, int) or not isinstance(total, int) or each < 1:
        return {}
    return {
        name: WholeArray(
            name,
            info.model_copy(update={"shape": (total, *info.shape[1:])}),
            tuple(own.parts),
            each,
            _is_bf16(first, info),
        )
        for name, info in first.manifest.arrays.items()
    }


def _one(artifact: Artifact, name: str, info: ArrayInfo) -> WholeArray:
    shards, windows = (artifact.name,), max(info.shape[0], 1) if info.shape else 1
    return WholeArray(name, info, shards, windows, _is_bf16(artifact, info))


def _is_bf16(artifact: Artifact, info: ArrayInfo) -> bool:
    return info.dtype == "uint16" and artifact.manifest.settings.get("dtype") == "bf16"


def window_values(depot: Depot, array: WholeArray, window: int) -> Values:
    """One window's values [T, …], bf16 widened to f32. NotHere, ArtifactDamaged, Damaged.

    Opens one array and reads one chunk, however large the whole is.
    """
    if not 0 <= window < array.windows:
        raise NotHere(
            f"{array.name} holds windows 0 to {array.windows - 1:,}, not {window:,}."
        )
    shard, place = divmod(window, array.windows_each)
    if shard >= len(array.shards):
        raise Damaged(f"{array.name} should have {array.windows:,} windows; shards lack.")
    opened = open_array(depot.find(array.shards[shard]).path, array.name, window=place)
    if place >= len(opened) or opened.shape[1:] != array.info.shape[1:]:
        raise Damaged(
            f"{array.shards[shard]}/{array.name} has shape {opened.shape}, not what its "
            "manifest says; run the command again to have it made anew."
        )
    values: Values = opened[place]
    return widened(values) if array.is_bf16 else values


def widened(bits: Values) -> npt.NDArray[np.float32]:
    """bf16 bits in u16 as the f32 of the same value."""
    wide = bits.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)
