"""Packed windows as later stages read them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from store.artifact import Artifact
from store.tables import read_table

TABLE = "windows.arrow"


@dataclass(frozen=True)
class Packed:
    """Packed windows: `ids` [W, T], padded on the right; lengths, sets, held out.

    `record` [W, T] numbers the records of a window from 0, row by row; padding is part of
    the last.
    """

    ids: "npt.NDArray[np.uint32]"
    length: "npt.NDArray[np.int64]"
    set_index: "npt.NDArray[np.int64]"
    is_held_out: "npt.NDArray[np.bool_]"
    record: "npt.NDArray[np.int64]"
    names: tuple[str, ...]

    @property
    def held_out(self) -> list[int]:
        """Indices of the held-out windows."""
        return [int(i) for i in np.flatnonzero(self.is_held_out)]

    @property
    def training(self) -> list[int]:
        """Indices of the training windows, short last ones too."""
        return [int(i) for i in np.flatnonzero(~self.is_held_out)]

    def unlike(self, places: Sequence[int]) -> list[int]:
        """These windows without copies of earlier ones among them."""
        first: dict[bytes, int] = {}
        for place in places:
            ids = self.ids[place, : self.length[place]]
            first.setdefault(hashlib.blake2b(ids.tobytes()).digest(), place)
        return list(first.values())


def read_windows(artifact: Artifact) -> Packed:
    """The windows `pack_windows` wrote, padded with an id that no figure ever counts."""
    table = read_table(artifact.path / TABLE)
    rows = table.column("ids").combine_chunks()
    length = np.diff(rows.offsets.to_numpy().astype(np.int64))
    width = int(artifact.manifest.settings["window"])
    pad = int(artifact.manifest.settings["pad"])
    ids = np.full((len(length), width), pad, np.uint32)
    ids[np.arange(width)[None, :] < length[:, None]] = rows.values.to_numpy()
    return Packed(
        ids,
        length,
        table.column("set").to_numpy().astype(np.int64),
        table.column("held_out").to_numpy(zero_copy_only=False).astype(np.bool_),
        _record_rows(table, ids.shape),
        tuple(artifact.manifest.settings["names"]),
    )


def held_out_copies(artifact: Artifact) -> int:
    """Held-out windows that repeat an earlier one: an interval counts them as new."""
    packed = read_windows(artifact)
    return len(packed.held_out) - len(packed.unlike(packed.held_out))


def _record_rows(table: pa.Table, shape: tuple[int, ...]) -> "npt.NDArray[np.int64]":
    """Each row's record; a record that began in the window before is number 0 too."""
    starts = table.column("record_starts").combine_chunks()
    window = np.repeat(np.arange(len(starts)), np.diff(starts.offsets.to_numpy()))
    begins = np.zeros(shape, np.int64)
    begins[window, starts.values.to_numpy()] = 1
    begins[:, 0] = 0
    return begins.cumsum(1)
