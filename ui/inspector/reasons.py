"""Why a stage ran: what in its recipe differs from the nearest artifact made before it."""

from dataclasses import dataclass

from pydantic import JsonValue

from store.keys import canonical_json
from store.manifest import Manifest
from store.nearest import Difference, Nearest, flat_settings, nearest
from ui.figures import digest
from ui.inspector.depot import Depot


@dataclass(frozen=True)
class Setting:
    """A line of a recipe, and what stood there before if that was something else."""

    kind: str
    name: str
    value: str
    was: str | None


def earlier(depot: Depot, manifest: Manifest) -> Nearest | None:
    """The artifact of the stage, made before this one, that differs in least."""
    past = [
        entry.manifest
        for entry in depot.entries()
        if entry.manifest is not None
        and entry.stage == manifest.stage
        and entry.manifest.key != manifest.key
        and entry.manifest.started <= manifest.started
    ]
    return nearest(manifest, past)


def recipe_lines(manifest: Manifest, past: Nearest | None) -> tuple[Setting, ...]:
    """Version and settings by dotted name: those that differ, then the others."""
    changed = {} if past is None else {(d.kind, d.name): d for d in past.differences}
    found = [_line("version", "version", manifest.version, changed)]
    found += [
        _line("setting", name, value, changed)
        for name, value in flat_settings(manifest.settings).items()
    ]
    known = {line.name for line in found}
    found += [
        Setting("setting", d.name, "unset", spell(d.there))
        for d in changed.values()
        if d.kind == "setting" and d.name not in known
    ]
    return tuple(sorted(found, key=lambda line: line.was is None))


def _line(
    kind: str, name: str, value: JsonValue, changed: dict[tuple[str, str], Difference]
) -> Setting:
    difference = changed.get((kind, name))
    was = None if difference is None else spell(difference.there)
    return Setting(kind, name, spell(value), was)


def spell(value: JsonValue) -> str:
    """A setting as a line can hold it; whole, long digests shortened."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return digest(value)
    return canonical_json(value).decode()
