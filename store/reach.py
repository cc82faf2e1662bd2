"""What artifacts were made from: through parts, and inputs by their content digest."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from store.runs import Run
from store.upkeep import Item


class Lineage:
    """The finished artifacts of a store, to walk from any of them to all it rests on.

    An input names content. Artifacts that hold the same are all its origin. A model file
    is known by digests of its own: `models` says in which artifacts they lie.
    """

    def __init__(
        self, listed: Sequence[Item], models: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.items = {item.name: item for item in listed}
        self._by_content = {key: list(names) for key, names in (models or {}).items()}
        for item in listed:
            if item.manifest is not None:
                content = item.manifest.content_digest
                self._by_content.setdefault(content, []).append(item.name)

    def behind(self, names: Iterable[str]) -> set[str]:
        """Those of `names` that are here, and everything they were made from."""
        found: set[str] = set()
        ahead = [name for name in names if name in self.items]
        while ahead:
            name = ahead.pop()
            if name not in found:
                found.add(name)
                ahead += [one for one in self._direct(name) if one in self.items]
        return found

    def _direct(self, name: str) -> Iterator[str]:
        manifest = self.items[name].manifest
        if manifest is None:
            return
        yield from manifest.parts
        for digest in _texts(manifest.inputs):
            yield from self._by_content.get(digest, ())


def stages_of(run: Run) -> set[str]:
    """Every artifact a run asked for, found, made or is making, as "stage/key"."""
    record = run.record
    asked = {f"{one.name}/{one.key}" for one in record.events}
    asked |= {f"{one.name}/{one.key}" for one in record.filling}
    return asked if record.report is None else asked | {record.report}


def _texts(value: object) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
