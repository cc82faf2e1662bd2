"""How a stage call differs from what the store holds, and what that says of its cost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from store.keys import canonical_json
from store.manifest import Json, Manifest, Recipe

SHOWN_CHARACTERS = 40
SHOWN_DIFFERENCES = 3
# What the work of a stage goes by: the first that a call and a past one both tell.
UNITS = ("tokens", "windows", "bytes", "steps")
AT_PACE = "at_pace_s"  # a note: the seconds that go with the work, of those a stage took


@dataclass(frozen=True)
class Difference:
    """One setting or input of a call, as it is here and as it was there."""

    kind: str  # "version", "setting" or "input"
    name: str
    here: JsonValue
    there: JsonValue

    def text(self) -> str:
        """`lr is 0.003, was 0.01`, `input draft is another`."""
        here, there = _short(self.here), _short(self.there)
        if self.kind == "version":
            return f"the stage is version {here}, was {there}"
        if self.kind == "input":
            return f"input {self.name} is another"
        if here is None or there is None:
            return f"{self.name} is another"
        return f"{self.name} is {here}, was {there}"


@dataclass(frozen=True)
class Nearest:
    """The artifact of a stage that differs least from a call, and in what.

    `telling` is, of all that differ as little, the one that did most work: what a small one
    took is mostly what it takes to begin, and would be scaled with it.
    """

    manifest: Manifest
    differences: tuple[Difference, ...]
    telling: Manifest

    def text(self) -> str:
        """The first differences, and where they were otherwise."""
        shown = [one.text() for one in self.differences[:SHOWN_DIFFERENCES]]
        more = len(self.differences) - len(shown)
        if more:
            shown.append(f"{more} more")
        name = f"{self.manifest.stage}/{self.manifest.key[:8]}"
        return f"{'; '.join(shown)} (in {name})"


@dataclass(frozen=True)
class Cost:
    """What a stage is expected to write and to take; None is unknown."""

    size_bytes: int | None
    seconds: float | None


def nearest(recipe: Recipe, past: Sequence[Manifest]) -> Nearest | None:
    """The artifact with the fewest differences, the latest of those; None without any."""
    compared = [(one, tuple(differences(recipe, one))) for one in past]
    fewest = min((len(found) for _, found in compared), default=0)
    close = [(one, found) for one, found in compared if len(found) == fewest]
    if not close:
        return None
    latest, found = max(close, key=lambda pair: pair[0].started)
    telling = max((one for one, _ in close), key=lambda one: (_amount(one), one.started))
    return Nearest(latest, found, telling)


def _amount(done: Manifest) -> float:
    """Of work, in whatever its numbers count."""
    return sum(_work(done.numbers, done.settings).values())


def differences(recipe: Recipe, past: Recipe) -> Iterator[Difference]:
    """Everything in a call's key that is otherwise in another's."""
    if recipe.version != past.version:
        yield Difference("version", "version", recipe.version, past.version)
    for kind, here, there in (
        ("setting", flat_settings(recipe.settings), flat_settings(past.settings)),
        ("input", _inputs(recipe.inputs), _inputs(past.inputs)),
    ):
        for name in here | there:
            if here.get(name) != there.get(name):
                yield Difference(kind, name, here.get(name), there.get(name))


def cost(
    recipe: Recipe,
    expected: Mapping[str, object],
    past: Manifest,
    *,
    begins: bool = True,
) -> Cost:
    """What a past artifact took, scaled by the work; `expected`: numbers known before.

    Of its time only what goes with the work is scaled; the rest (a model read, libraries
    imported) comes once, to the call that `begins` the stage's work in a run.
    """
    here, there = _work(expected, recipe.settings), _work(past.numbers, past.settings)
    unit = next((unit for unit in UNITS if unit in here and there.get(unit)), None)
    scale = 1.0 if unit is None else here[unit] / there[unit]
    size = sum(file.size for file in past.files.values())
    return Cost(
        # More steps make the same draft.
        round(size if unit == "steps" else size * scale),
        # What a resumed fill took before it was cut, nobody wrote down.
        None if past.resumed else _seconds(past, scale, begins=begins),
    )


def _seconds(past: Manifest, scale: float, *, begins: bool) -> float:
    pace = _number(past.notes.get(AT_PACE))
    if pace is None:
        return past.seconds * scale
    pace = min(pace, past.seconds)
    return pace * scale + (past.seconds - pace if begins else 0.0)


def _work(numbers: Mapping[str, object], settings: Json) -> dict[str, float]:
    """Tokens, windows, bytes and steps by what a stage says; steps also as asked for."""
    asked = settings.get("steps", settings.get("recipe", {}).get("steps"))
    told = {unit: _number(numbers.get(unit)) for unit in UNITS}
    told["steps"] = told["steps"] or _number(asked)
    return {unit: value for unit, value in told.items() if value is not None}


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]  # just looked


def flat_settings(value: JsonValue, name: str = "") -> dict[str, JsonValue]:
    """Nested settings by dotted name; a list counts as one value."""
    if not isinstance(value, dict) or not value:
        return {name: value} if name else {}
    found: dict[str, JsonValue] = {}
    for key, inner in value.items():
        found |= flat_settings(inner, f"{name}.{key}" if name else key)
    return found


def _inputs(value: JsonValue, name: str = "") -> dict[str, JsonValue]:
    """Digests by input: `draft`, `sets[0]`, `measures.stale`."""
    if isinstance(value, dict):
        pairs = value.get("in_order", [[key, inner] for key, inner in value.items()])
        assert isinstance(pairs, list), "digests_in makes it one"
        named = [
            (f"{name}.{pair[0]}" if name else str(pair[0]), pair[1])
            for pair in pairs
            if isinstance(pair, list)
        ]
    elif isinstance(value, list):
        named = [(f"{name}[{place}]", inner) for place, inner in enumerate(value)]
    else:
        return {name: value}
    found: dict[str, JsonValue] = {}
    for inner_name, inner in named:
        found |= _inputs(inner, inner_name)
    return found


def _short(value: JsonValue) -> str | None:
    """A value as a sentence can hold it; None if it is too long for one."""
    if value is None:
        return "unset"
    text = value if isinstance(value, str) else canonical_json(value).decode()
    return text if len(text) <= SHOWN_CHARACTERS and "\n" not in text else None
