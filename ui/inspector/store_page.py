"""The store: what takes the room, what is damaged, what was cut off, what could go."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from store.collect import sweep
from store.space import free_bytes
from ui.figures import duration, size
from ui.inspector.answer import Format, as_table, page, table_response
from ui.inspector.depot import Depot, Entry, EntryState, InDepot
from ui.inspector.heals import when
from ui.inspector.lineage import about
from ui.plots import bar

router = APIRouter()

SHOWN = 200
KEPT_RUNS = 10  # what the page offers to work out
Keep = Annotated[int, Query(ge=1, le=10_000)]


@dataclass(frozen=True)
class StageSpace:
    """What a stage's artifacts take, by their manifests."""

    stage: str
    finished: int
    unfinished: int
    damaged: int
    size_bytes: int
    share: float
    bar: Markup
    seconds: float
    elsewhere: str  # where its bytes lie if it has none of its own

    @property
    def size(self) -> str:
        """`4.2 GB`."""
        return size(self.size_bytes)

    @property
    def took(self) -> str:
        """What making all of them took."""
        return duration(self.seconds)


@dataclass(frozen=True)
class Listed:
    """An artifact as a list spells it."""

    entry: Entry
    when: str
    size: str
    took: str
    about: str
    elsewhere: str


@router.get("/store", response_class=HTMLResponse, include_in_schema=False)
def store(
    request: Request, depot: InDepot, stage: str = "", keep: Keep | None = None
) -> Response:
    """The whole store, or one stage's artifacts, newest first.

    With `keep`, also what `heal store gc` would free that keeps so many runs.
    """
    entries = depot.entries()
    chosen = sorted(
        (entry for entry in entries if entry.stage == stage), key=lambda e: -e.changed
    )
    spaces = space_by_stage(entries)
    filling = _filling(depot)
    return page(
        request, "store.html", title="Store", stage=stage, spaces=spaces,
        total=size(sum(one.size_bytes for one in spaces)), artifacts=len(entries),
        free=size(free_bytes(depot.root)), listed=[_listed(e) for e in chosen[:SHOWN]],
        found=len(chosen), shown=SHOWN,
        damaged=[entry for entry in entries if entry.state == "damaged"],
        unfinished=[
            (entry, when(_moment(entry.changed)), depot.progress(entry.stage, entry.key),
             (entry.stage, entry.key) in filling)
            for entry in entries if entry.state == "unfinished"
        ],
        aside=set_aside(depot), keep=keep, offer=keep or KEPT_RUNS,
        freed=None if keep is None else would_free(depot, keep),
    )  # fmt: skip


@router.get("/api/store/stages.{form}", tags=["store"])
def stages_table(depot: InDepot, form: Format) -> Response:
    """Artifacts and bytes by stage."""
    columns = ("stage", "finished", "unfinished", "damaged", "bytes", "seconds")
    rows = [
        (s.stage, s.finished, s.unfinished, s.damaged, s.size_bytes, s.seconds)
        for s in space_by_stage(depot.entries())
    ]
    return table_response(as_table(columns, rows), form, "stages")


@router.get("/api/store/artifacts.{form}", tags=["store"])
def artifacts_table(depot: InDepot, form: Format, stage: str = "") -> Response:
    """Every artifact, or one stage's: state, bytes, when and how long it was made."""
    columns = ("stage", "key", "state", "bytes", "changed", "seconds", "problem")
    rows = [
        (e.stage, e.key, e.state, e.size_bytes, _moment(e.changed).isoformat(),
         None if e.manifest is None else e.manifest.seconds, e.problem)
        for e in depot.entries() if not stage or e.stage == stage
    ]  # fmt: skip
    return table_response(as_table(columns, rows), form, "artifacts")


@router.get("/api/store/damaged.{form}", tags=["store"])
def damaged_table(depot: InDepot, form: Format) -> Response:
    """What cannot be read as it was written, and what a run moved aside."""
    rows = [(e.name, "damaged", e.problem) for e in depot.entries() if e.state == "damaged"]
    rows += [(f"damaged/{name}", "set aside", "") for name in set_aside(depot)]
    return table_response(as_table(("name", "state", "problem"), rows), form, "damaged")


@router.get("/api/store/unfinished.{form}", tags=["store"])
def unfinished_table(depot: InDepot, form: Format) -> Response:
    """What a run is filling, or was cut off in; `said` is its last progress."""
    filling = _filling(depot)
    rows = [
        (e.stage, e.key, "running" if (e.stage, e.key) in filling else "cut off",
         _moment(e.changed).isoformat(),
         str((depot.progress(e.stage, e.key) or {}).get("line", "")))
        for e in depot.entries() if e.state == "unfinished"
    ]  # fmt: skip
    columns = ("stage", "key", "state", "changed", "said")
    return table_response(as_table(columns, rows), form, "unfinished")


@router.get("/api/store/gc.{form}", tags=["store"])
def gc_table(depot: InDepot, form: Format, keep: Keep = KEPT_RUNS) -> Response:
    """All that `heal store gc` would free that keeps so many runs, largest first."""
    wastes = sorted(sweep(depot.store, keep).wastes, key=lambda waste: -waste.size_bytes)
    rows = [(w.name, w.kind, w.size_bytes, _moment(w.changed).isoformat()) for w in wastes]
    return table_response(as_table(("name", "why", "bytes", "changed"), rows), form, "gc")


def _filling(depot: Depot) -> set[tuple[str, str]]:
    """Stage and key of what the running runs make now."""
    return {
        (one.name, one.key)
        for run in depot.runs() if run.state == "running"
        for one in run.record.filling
    }  # fmt: skip


def elsewhere(entries: Sequence[Entry]) -> str:
    """`in trunk_shard` where artifacts have no bytes of their own but parts; else ""."""
    manifests = [entry.manifest for entry in entries if entry.manifest is not None]
    parts = [part for manifest in manifests for part in manifest.parts]
    if not parts or any(entry.size_bytes for entry in entries):
        return ""
    return "in " + ", ".join(dict.fromkeys(part.partition("/")[0] for part in parts))


def space_by_stage(entries: Sequence[Entry]) -> list[StageSpace]:
    """Largest first; sizes are the manifests', so nothing on disk is walked."""
    by_stage: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_stage[entry.stage].append(entry)
    sizes = {name: sum(e.size_bytes for e in held) for name, held in by_stage.items()}
    whole, largest = sum(sizes.values()) or 1, max(sizes.values(), default=0) or 1
    found = [
        StageSpace(
            stage=name,
            finished=_count(held, "finished"),
            unfinished=_count(held, "unfinished"),
            damaged=_count(held, "damaged"),
            size_bytes=sizes[name],
            share=sizes[name] / whole,
            bar=bar(sizes[name] / largest),
            seconds=sum(e.manifest.seconds for e in held if e.manifest is not None),
            elsewhere=elsewhere(held),
        )
        for name, held in by_stage.items()
    ]
    return sorted(found, key=lambda one: (-one.size_bytes, one.stage))


def _count(entries: Sequence[Entry], state: EntryState) -> int:
    return sum(entry.state == state for entry in entries)


def set_aside(depot: Depot) -> list[str]:
    """Names of what was moved to `damaged/` when a run found it so."""
    folder = depot.root / "damaged"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@dataclass(frozen=True)
class Freed:
    """What collecting would free, by why it could go, largest first."""

    kept: int
    total: str
    kinds: tuple[tuple[str, int, str], ...]
    wastes: tuple[tuple[str, str, str], ...]


def would_free(depot: Depot, keep: int) -> Freed:
    """What `heal store gc` would free now; it walks the store, so only when asked."""
    found = sweep(depot.store, keep)
    by_kind: dict[str, list[int]] = defaultdict(list)
    for waste in found.wastes:
        by_kind[waste.kind].append(waste.size_bytes)
    largest = sorted(found.wastes, key=lambda waste: -waste.size_bytes)
    return Freed(
        kept=found.kept,
        total=size(sum(waste.size_bytes for waste in found.wastes)),
        kinds=tuple((kind, len(all_), size(sum(all_))) for kind, all_ in by_kind.items()),
        wastes=tuple((w.kind, w.name, size(w.size_bytes)) for w in largest[:SHOWN]),
    )


def _listed(entry: Entry) -> Listed:
    manifest = entry.manifest
    return Listed(
        entry,
        when(_moment(entry.changed)),
        size(entry.size_bytes),
        "–" if manifest is None else duration(manifest.seconds),
        "" if manifest is None else about(manifest),
        elsewhere([entry]),
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
