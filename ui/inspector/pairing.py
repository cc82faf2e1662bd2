"""Whether two heals were measured on the same windows, and the pairs of sums if so."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from store.artifact import Artifact
from store.errors import ArtifactDamaged
from store.manifest import MANIFEST
from ui.inspector.depot import Depot, Entry, InspectorError
from ui.inspector.heal_list import Heal
from ui.inspector.sums import TABLE, Pair, Sums, read_sums
from ui.page import ALL

OTHER_WINDOWS = "they were not measured on the same windows"
NO_SUMS = (
    "the store has not kept what counted in each window; running the same commands again "
    "measures it"
)


@dataclass(frozen=True)
class Pairing:
    """Pairs by draft (of one heal's before and after by ""), or `why` there are none.

    `names` are the data sets in the order that sums count them.
    """

    why: str = NO_SUMS
    windows: int = 0
    names: tuple[str, ...] = ()
    drafts: Mapping[str, Pair] = field(default_factory=dict, repr=False)
    temperatures: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())

    def of(self, title: str, draft: str) -> Pair | None:
        """The pair of a draft on a data set, or on all of them."""
        pair = self.drafts.get(draft)
        if pair is None or title == ALL or self.names == (title,):
            return pair
        here = None if title not in self.names else pair.of_set(self.names.index(title))
        return here if here is not None and len(here.a.window_W) else None


def pairing_of(depot: Depot, a: Heal, b: Heal) -> Pairing:
    """A and B by draft; of one heal its stale draft beside its healed one."""
    one = _measures(depot, a)
    two = one if a.id == b.id else _measures(depot, b)
    if a.id == b.id:
        asked = {"": (one.get("stale"), one.get("healed"))}
    else:
        asked = {name: (one[name], two.get(name)) for name in one}
    found = {name: (x, y) for name, (x, y) in asked.items() if x and y}
    if not found:
        return Pairing()
    same = {name: both for name, both in found.items() if _same_windows(*both)}
    if not same:
        return Pairing(OTHER_WINDOWS)
    pairs = {name: pair for name, both in same.items() if (pair := _pair(*both))}
    if not pairs:
        return Pairing()
    first = next(iter(same.values()))
    return Pairing(
        "",
        len(next(iter(pairs.values())).a.window_W),
        _names(depot, first[0]),
        pairs,
        (_temperatures(first[0]), _temperatures(first[1])),
    )


def _measures(depot: Depot, heal: Heal) -> dict[str, Artifact]:
    """The measures a heal's report was made of, those that are whole: by draft, and by
    `codecs.NAME` of the files that carry it.
    """
    if heal.report_key is None:
        return {}
    try:
        inputs = depot.inputs(depot.artifact("report", heal.report_key).manifest)
    except InspectorError:
        return {}
    found = {}
    for name, entries in inputs.items():
        where, _, draft = name.partition(".")
        whole = [one for one in entries if _is_whole(one)]
        if where in ("measures", "codecs") and whole:
            known = draft if where == "measures" else name
            found[known] = depot.artifact("measure_draft", whole[0].key)
    return found


def _is_whole(entry: Entry) -> bool:
    return entry.stage == "measure_draft" and (entry.path / MANIFEST).is_file()


def _same_windows(a: Artifact, b: Artifact) -> bool:
    """By the content of what both packed."""
    return bool(a.manifest.inputs["windows"] == b.manifest.inputs["windows"])


def _pair(a: Artifact, b: Artifact) -> Pair | None:
    sums = _sums(a), _sums(b)
    if sums[0] is None or sums[1] is None:
        return None
    is_same = np.array_equal(sums[0].window_W, sums[1].window_W)
    return Pair(sums[0], sums[1]) if is_same else None


def _sums(artifact: Artifact) -> Sums | None:
    """None where the measure has none, or its table is gone since."""
    if TABLE not in artifact.manifest.files:
        return None
    try:
        return read_sums(artifact.path / TABLE, len(_temperatures(artifact)))
    except (ArtifactDamaged, InspectorError):
        return None  # then its differences are told unpaired, and the page says so


def _temperatures(artifact: Artifact) -> tuple[float, ...]:
    said = artifact.manifest.settings.get("temperatures")
    return tuple(float(t) for t in said) if isinstance(said, list | tuple) else ()


def _names(depot: Depot, measure: Artifact) -> tuple[str, ...]:
    for entry in depot.inputs(measure.manifest).get("windows", ()):
        names = entry.manifest.settings.get("names") if entry.manifest else None
        return tuple(map(str, names)) if isinstance(names, list | tuple) else ()
    return ()
