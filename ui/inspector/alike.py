"""What tells heals of one model apart in a list: the settings in which they differ."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from ui.inspector.heal_list import Heal

TOLD = 3  # settings of a row; the page of the heal has all
VALUE_CHARACTERS = 28
NO_BREAK = "\u00a0"
ARTIFACT = re.compile(r"([a-z_]+)/([0-9a-f]{8})[0-9a-f]{24}/")
# Where a run keeps and computes things is not what it asked for.
ASIDE = ("runtime.", "outputs", "demo.gate")


def differing(heals: Iterable[Heal]) -> dict[str, str]:
    """By a heal's id, its values of what is not the same in all heals of its model.

    `lr 0.001, steps 120, 2 more`; empty where nothing differs.
    """
    alike: dict[str, list[Heal]] = defaultdict(list)
    for heal in heals:
        alike[heal.asked.title].append(heal)
    found: dict[str, str] = {}
    for group in alike.values():
        names = _varying([heal.asked.settings for heal in group])
        found |= {heal.id: _told(heal.asked.settings, names) for heal in group}
    return found


def _varying(settings: list[Mapping[str, str]]) -> list[str]:
    """Names with more than one value; a heal that lacks one says nothing of it."""
    values: dict[str, set[str]] = defaultdict(set)
    for one in settings:
        for name, value in one.items():
            values[name].add(value)
    names = [n for n, seen in values.items() if len(seen) > 1 and not n.startswith(ASIDE)]
    return sorted(names, key=lambda name: not name.startswith("train."))


def _told(settings: Mapping[str, str], names: list[str]) -> str:
    there = [name for name in names if name in settings]
    told = [(_short_name(n, names), _short_value(settings[n])) for n in there[:TOLD]]
    parts = [f"{name}{NO_BREAK}{value}" for name, value in told]
    if len(there) > TOLD:
        parts.append(f"{len(there) - TOLD} more")
    return ", ".join(parts)


def _short_name(name: str, names: list[str]) -> str:
    """Its last part, where no other of them ends in the same."""
    last = name.rpartition(".")[2]
    return last if sum(n.rpartition(".")[2] == last for n in names) == 1 else name


def _short_value(value: str) -> str:
    """Whole if it is short; of a path its end, of one into a store its artifact."""
    inside = ARTIFACT.search(value)
    if inside is not None:
        return f"{inside[1]}/{inside[2]}"
    if len(value) <= VALUE_CHARACTERS:
        return value
    is_path = value.startswith(("/", "./", "~"))
    kept = VALUE_CHARACTERS - 1
    return f"…{value[-kept:]}" if is_path else f"{value[:kept]}…"
