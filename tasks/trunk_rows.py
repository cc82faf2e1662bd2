"""The trunk's rows as later stages read them, window by window."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from store.arrays import WindowArray, open_array
from store.artifact import Artifact
from tasks.stage import Runtime

if TYPE_CHECKING:
    import torch

KEPT_BLOCKS = 8


@dataclass(frozen=True)
class TrunkRows:
    """The arrays of a whole pass, window by window, wherever their shards lie."""

    shards: tuple[Path, ...]
    shard_windows: int
    is_bf16: bool
    is_isolated: bool = False  # the records of a window saw nothing of each other
    _opened: dict[tuple[int, str], WindowArray] = field(default_factory=dict, repr=False)
    _blocks: dict[tuple[int, str, int], npt.NDArray[np.generic]] = field(
        default_factory=dict, repr=False
    )

    def read(self, name: str, window: int) -> npt.NDArray[np.generic]:
        """One window's [T, …] of an array; ArtifactDamaged if its checksum fails."""
        shard, place = divmod(window, self.shard_windows)
        if (shard, name) not in self._opened:
            self._opened[shard, name] = open_array(self.shards[shard], name)
        array = self._opened[shard, name]
        chunk, within = divmod(place, array.chunks[0])
        rows: npt.NDArray[np.generic] = self._block(shard, name, chunk)[within]
        return rows

    def _block(self, shard: int, name: str, chunk: int) -> npt.NDArray[np.generic]:
        """A whole chunk; the last few are kept, since a batch reads neighbours."""
        key = (shard, name, chunk)
        if key not in self._blocks:
            if len(self._blocks) >= KEPT_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            array = self._opened[shard, name]
            start = chunk * array.chunks[0]
            self._blocks[key] = array[start : start + array.chunks[0]]
        return self._blocks[key]

    def hidden(self, window: int) -> "torch.Tensor":
        """One window's raw hidden rows [T, H], bf16 or f32 as the pass made them."""
        import torch

        rows = torch.from_numpy(self.read("hidden", window))
        return rows.view(torch.bfloat16) if self.is_bf16 else rows


def read_rows(artifact: Artifact, runtime: Runtime) -> TrunkRows:
    """The rows of a joined pass."""
    settings = artifact.manifest.settings
    shards = tuple(part.path for part in runtime.store.parts(artifact))
    return TrunkRows(
        shards,
        int(settings["shard_windows"]),
        settings["dtype"] == "bf16",
        bool(settings.get("isolate", False)),
    )
