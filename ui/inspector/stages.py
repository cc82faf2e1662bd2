"""One artifact: why it was made, of what, who uses it, whether it is whole."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import JsonValue

from store.artifact import Artifact
from store.manifest import ArrayInfo, Json, Manifest
from store.nearest import Nearest
from ui.figures import count, day, duration, size
from ui.inspector.answer import Format, Table, as_table, chosen_table, page, table_response
from ui.inspector.depot import Depot, Entry, InDepot, input_digests
from ui.inspector.lineage import about
from ui.inspector.model_files import MODEL_INPUTS, ModelFile, model_files
from ui.inspector.reasons import earlier, recipe_lines, spell

router = APIRouter()

SHOWN = 50  # rows of a long list; the whole is in its CSV


@dataclass(frozen=True)
class Checked:
    """What a look at the bytes found, `problems` by "stage/key"."""

    is_deep: bool
    problems: dict[str, list[str]]
    took: str


@dataclass(frozen=True)
class Array:
    """A Zarr array's outline; `size` as it lies on disk."""

    name: str
    shape: str
    dtype: str
    chunks: str
    size: str


@dataclass(frozen=True)
class Input:
    """An input by its name in the recipe, and the artifacts or files with that content."""

    name: str
    digest: str
    entries: tuple[Entry, ...]
    files: tuple[ModelFile, ...] = ()

    @property
    def is_model(self) -> bool:
        """It is a model file, or a part of one, whether the store still knows it or not."""
        return bool(self.files) or (not self.entries and self.name in MODEL_INPUTS)


@router.get("/stage/{stage}/{key}", response_class=HTMLResponse, include_in_schema=False)
def artifact(request: Request, depot: InDepot, stage: str, key: str) -> Response:
    """The page of an artifact in whatever state."""
    return _page(request, depot, depot.entry(stage, key), None)


@router.get(
    "/stage/{stage}/{key}/check", response_class=HTMLResponse, include_in_schema=False
)
def check(
    request: Request, depot: InDepot, stage: str, key: str, *, deep: bool = False
) -> Response:
    """The same page after a look: sizes and times, or (`deep`) every byte of it."""
    entry = depot.entry(stage, key)
    start = time.monotonic()
    problems = _problems(depot, entry, is_deep=deep)
    took = duration(time.monotonic() - start)
    return _page(request, depot, entry, Checked(deep, problems, took))


@router.get("/api/artifacts/{stage}/{key}/check", tags=["artifacts"])
def check_result(
    depot: InDepot, stage: str, key: str, *, deep: bool = False
) -> dict[str, object]:
    """`{"is_whole", "problems": {"stage/key": […]}}` after a quick or a deep look."""
    problems = _problems(depot, depot.entry(stage, key), is_deep=deep)
    return {"is_whole": not problems, "problems": problems}


@router.get("/api/artifacts/{stage}/{key}/{table}.{form}", tags=["artifacts"])
def artifact_table(
    depot: InDepot, stage: str, key: str, table: str, form: Format
) -> Response:
    """A table of one artifact: recipe, inputs, consumers, files, arrays, numbers."""
    tables = _tables(depot, depot.artifact(stage, key))
    return table_response(chosen_table(tables, table), form, f"{stage}-{key[:8]}-{table}")


def _problems(depot: Depot, entry: Entry, *, is_deep: bool) -> dict[str, list[str]]:
    if entry.state == "damaged":
        return {entry.name: [entry.problem]}
    if entry.manifest is None:
        return {}
    found = Artifact(entry.stage, entry.key, entry.path, entry.manifest)
    if not is_deep:
        return depot.store.damage(found)
    problems = depot.store.deep_check(found)
    return {entry.name: problems} if problems else {}


def _page(
    request: Request, depot: Depot, entry: Entry, checked: Checked | None
) -> HTMLResponse:
    shared: Mapping[str, object] = {"entry": entry, "checked": checked}
    title = f"{entry.stage} {entry.key[:8]}"
    if entry.manifest is None:
        said = depot.progress(entry.stage, entry.key)
        return page(request, "unfinished.html", title=title, progress=said, **shared)
    manifest = entry.manifest
    found = Artifact(entry.stage, entry.key, entry.path, manifest)
    past = earlier(depot, manifest)
    return page(
        request, "stage.html", title=title, manifest=manifest, past=past,
        recipe=recipe_lines(manifest, past), inputs=_inputs(depot, manifest),
        changed_inputs=_changed_inputs(past), consumers=depot.consumers(found), say=_say,
        arrays=_arrays(manifest), files=_files(manifest), lost=depot.lost_files(entry),
        numbers=_facts(manifest.numbers), notes=_facts(manifest.notes),
        made=_when(manifest.started), about=about(manifest), shown=SHOWN, **shared,
    )  # fmt: skip


def _say(entry: Entry) -> str:
    """What tells an artifact of a list from its neighbours."""
    return "" if entry.manifest is None else about(entry.manifest)


def _when(iso: str) -> str:
    return day(datetime.fromisoformat(iso).astimezone())


def _inputs(depot: Depot, manifest: Manifest) -> tuple[Input, ...]:
    digests = input_digests(manifest.inputs)
    known, files = depot.inputs(manifest), model_files(depot)
    return tuple(
        Input(name, digest, known[name], () if known[name] else files.get(digest, ()))
        for name, digest in digests.items()
    )


def _changed_inputs(past: Nearest | None) -> frozenset[str]:
    if past is None:
        return frozenset()
    return frozenset(d.name for d in past.differences if d.kind == "input")


def _array_bytes(manifest: Manifest, name: str) -> int:
    start = f"{name}/"
    return sum(f.size for path, f in manifest.files.items() if path.startswith(start))


def _arrays(manifest: Manifest) -> tuple[Array, ...]:
    return tuple(
        Array(name, _dims(info.shape), info.dtype, _dims(info.chunks),
              size(_array_bytes(manifest, name)))
        for name, info in manifest.arrays.items()
    )  # fmt: skip


def _dims(shape: tuple[int, ...]) -> str:
    return " × ".join(count(n) for n in shape) or "scalar"


def _files(manifest: Manifest) -> tuple[tuple[str, str, str], ...]:
    """Files that are no array's chunks: tables, models, pages."""
    inside = tuple(f"{name}/" for name in manifest.arrays)
    return tuple(
        (path, size(file.size), file.sha256)
        for path, file in manifest.files.items()
        if not path.startswith(inside)
    )


def _facts(values: Json) -> tuple[tuple[str, str], ...]:
    return tuple((name, spell(value)) for name, value in _flat(values).items())


def _flat(value: JsonValue, name: str = "") -> dict[str, JsonValue]:
    """Numbers by dotted name; lists of objects by their place, floats to six digits."""
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        value = {str(place): one for place, one in enumerate(value, start=1)}
    if isinstance(value, dict) and value:
        found: dict[str, JsonValue] = {}
        for key, inner in value.items():
            found |= _flat(inner, f"{name}.{key}" if name else key)
        return found
    if isinstance(value, list):
        return {name: [_short(one) for one in value]}
    return {name: _short(value)} if name else {}


def _short(value: JsonValue) -> JsonValue:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _tables(depot: Depot, found: Artifact) -> dict[str, Table]:
    manifest = found.manifest
    past = earlier(depot, manifest)
    consumers = depot.consumers(found)
    return {
        "recipe": as_table(
            ("kind", "name", "value", "was"),
            [(s.kind, s.name, s.value, s.was) for s in recipe_lines(manifest, past)],
        ),
        "inputs": as_table(
            ("name", "digest", "artifact", "file"),
            [(one.name, one.digest, one.entries[0].name if one.entries else None,
              str(one.files[0].path) if one.files else None)
             for one in _inputs(depot, manifest)],
        ),
        "consumers": as_table(("artifact",), [(entry.name,) for entry in consumers]),
        "files": as_table(
            ("file", "bytes", "sha256"),
            [(path, f.size, f.sha256) for path, f in manifest.files.items()],
        ),
        "arrays": as_table(
            ("array", "shape", "dtype", "chunks", "bytes"),
            [_array_cells(manifest, n, info) for n, info in manifest.arrays.items()],
        ),
        "numbers": as_table(("name", "value"), _facts(manifest.numbers)),
    }  # fmt: skip


def _array_cells(
    manifest: Manifest, name: str, info: ArrayInfo
) -> tuple[str, str, str, str, int]:
    shape, chunks = ("x".join(map(str, dims)) for dims in (info.shape, info.chunks))
    return name, shape, info.dtype, chunks, _array_bytes(manifest, name)
