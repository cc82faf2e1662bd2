"""One window with what its trunk and up to two drafts made of it.

The chain from `p` has step `j` (from 1): it was fed tokens p+1 … p+j and predicts token
p+j+1, which row p+j of the trunk judges (healing.md §6, §7).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from store.arrays import open_array
from store.artifact import Artifact
from store.tables import read_table
from ui.inspector.blocks import Values, whole_arrays, window_values
from ui.inspector.depot import Depot, Entry, InspectorError, NotHere
from ui.inspector.spelling import Spelling, spelling_of
from ui.inspector.sums import TABLE as SUMS

Role = Literal["stale", "healed"]
TABLE = "windows.arrow"


@dataclass(frozen=True)
class Chains:
    """A draft on one window: [T, C] and, for its best four, [T, C, 4]."""

    counted: Values
    hit: Values
    top_id: Values
    top_p: Values

    @property
    def kept(self) -> npt.NDArray[np.int64]:
        """Drafts kept from each start [T]: a hit needs every hit before it."""
        return np.asarray(self.hit.astype(np.int64).sum(1))


@dataclass(frozen=True)
class Measures:
    """A measure and the one it is read beside, by role, with what both rest on."""

    drafts: dict[Role, Artifact]
    windows: Artifact
    rows: Artifact
    held_out: tuple[int, ...]  # window numbers, in the measures' order
    depth: int
    spelling: Spelling


@dataclass(frozen=True)
class Window:
    """One window; `top_id`, `top_p` [T, K]: the trunk after each row.

    `is_isolated`: its records saw nothing of each other.
    """

    index: int
    ids: npt.NDArray[np.int64]
    record_starts: tuple[int, ...]
    set_name: str
    is_held_out: bool
    is_isolated: bool
    top_id: Values
    top_p: Values
    chains: dict[Role, Chains]

    def trunk_p(self, at: int) -> float | None:
        """The trunk's probability of token `at`; None if not kept, or token 0."""
        found = np.flatnonzero(self.top_id[at - 1] == self.ids[at]) if at else np.zeros(0)
        return float(self.top_p[at - 1, found[0]]) if len(found) else None

    @property
    def coverage(self) -> float | None:
        """Of the rows that have a next one, the share that counts (healing.md §7).

        With records apart, the last row of each has none.
        """
        records = 1 + sum(start > 0 for start in self.record_starts)
        rows = len(self.ids) - (records if self.is_isolated else 1)
        for one in self.chains.values():
            return float(one.counted[:, 0].sum()) / rows if rows else 0.0
        return None


def measures_of(depot: Depot, key: str) -> Measures:
    """The measure `key` beside its stale or healed other. NotHere, Damaged."""
    here = depot.artifact("measure_draft", key)
    inputs = depot.inputs(here.manifest)
    drafts = _roles(depot, here)
    return Measures(
        drafts,
        _only(depot, inputs, "windows"),
        _only(depot, inputs, "rows"),
        _held_out(depot, here),
        int(here.manifest.settings.get("depth", 1)),
        spelling_of(depot, str(here.manifest.inputs.get("trunk"))),
    )


def _only(depot: Depot, inputs: dict[str, tuple[Entry, ...]], name: str) -> Artifact:
    for entry in inputs.get(name, ()):
        return depot.artifact(entry.stage, entry.key)
    raise NotHere(
        f"What the measure read as {name} is no longer in the store; the same command "
        "makes it again."
    )


def _roles(depot: Depot, here: Artifact) -> dict[Role, Artifact]:
    """By the labels of a run that asked for this measure; alone it counts as healed."""
    for run in depot.runs():
        labels = {e.key: e.label for e in run.record.events if e.name == "measure_draft"}
        if here.key not in labels:
            continue
        own: Role = "stale" if labels[here.key].startswith("stale") else "healed"
        other: Role = "healed" if own == "stale" else "stale"
        found: dict[Role, Artifact] = {own: here}
        for key, label in labels.items():
            if label.startswith(other) and other not in found:
                beside = _beside(depot, here, key)
                if beside is not None:
                    found[other] = beside
        return {role: found[role] for role in ("stale", "healed") if role in found}
    return {"healed": here}


def _beside(depot: Depot, here: Artifact, key: str) -> Artifact | None:
    """The other measure if it is whole and rests on the same windows and depth."""
    try:
        found = depot.artifact("measure_draft", key)
    except InspectorError:
        return None  # then this one is shown alone
    mine, its = here.manifest, found.manifest
    is_same = mine.inputs.get("windows") == its.inputs.get("windows")
    return found if is_same and _shape(mine.arrays) == _shape(its.arrays) else None


def _shape(arrays: object) -> object:
    return getattr(arrays.get("counted"), "shape", None) if isinstance(arrays, dict) else 0


def _held_out(depot: Depot, here: Artifact) -> tuple[int, ...]:
    return _numbers(depot, here.name, here.content_digest)


@lru_cache(maxsize=16)
def _numbers(depot: Depot, name: str, content: str) -> tuple[int, ...]:
    """The numbers of a measure's windows: from its sums, else its array, once a content."""
    here = depot.find(name)
    if SUMS in here.manifest.files:
        return tuple(read_table(here.path / SUMS).column("window").to_pylist())
    if "window" not in here.manifest.arrays:
        return ()
    return tuple(open_array(here.path, "window")[:].tolist())


def read_window(depot: Depot, measures: Measures, index: int) -> Window:
    """One window: one chunk of each array. NotHere, ArtifactDamaged, Damaged."""
    table = read_table(measures.windows.path / TABLE)
    if not 0 <= index < table.num_rows:
        raise NotHere(f"There are windows 0 to {table.num_rows - 1:,}, not {index:,}.")
    row = table.slice(index, 1).to_pylist()[0]
    names = measures.windows.manifest.settings.get("names")
    known = [str(name) for name in names] if isinstance(names, list | tuple) else []
    rows = whole_arrays(depot, measures.rows)
    chains: dict[Role, Chains] = {}
    if index in measures.held_out:
        place = measures.held_out.index(index)
        chains = {role: _chains(depot, a, place) for role, a in measures.drafts.items()}
    return Window(
        index,
        np.asarray(row["ids"], np.int64),
        tuple(row["record_starts"]),
        known[row["set"]] if row["set"] < len(known) else f"set {row['set']}",
        bool(row["held_out"]),
        bool(measures.rows.manifest.settings.get("isolate", False)),
        window_values(depot, rows["topk_id"], index),
        window_values(depot, rows["topk_p"], index),
        chains,
    )


def _chains(depot: Depot, artifact: Artifact, place: int) -> Chains:
    arrays = whole_arrays(depot, artifact)
    names = ("counted", "hit", "draft_top4_id", "draft_top4_p")
    return Chains(*(window_values(depot, arrays[name], place) for name in names))


def gains(depot: Depot, measures: Measures) -> tuple[tuple[int, float], ...]:
    """Each held-out window with its mean of drafts kept, healed − stale, largest first."""
    pair = [measures.drafts.get("stale"), measures.drafts.get("healed")]
    if None in pair:
        return ()
    means = [_kept_means(depot, one) for one in pair if one is not None]
    found = zip(measures.held_out, means[0], means[1], strict=True)
    return tuple(sorted(((w, b - a) for w, a, b in found), key=lambda one: -one[1]))


def _kept_means(depot: Depot, artifact: Artifact) -> Sequence[float]:
    return _means(depot, artifact.name, artifact.content_digest)


@lru_cache(maxsize=16)
def _means(depot: Depot, name: str, content: str) -> tuple[float, ...]:
    """Mean drafts kept over the starts that count, by held-out window; 0 for none."""
    path = depot.find(name).path
    counted_W = open_array(path, "counted")[:][:, :, 0].sum(1)
    hit_W = open_array(path, "hit")[:].sum((1, 2))
    return tuple(
        float(hits / counted) if counted else 0.0
        for hits, counted in zip(hit_W, counted_W, strict=True)
    )
