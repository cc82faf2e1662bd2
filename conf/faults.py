"""What pydantic found wrong, in our words: which setting, what it must be, what it is."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from conf.base import ContradictionError

LONGEST_SHOWN = 60
MAPPINGS = {"model_type", "dict_type"}
NO_SETTING = {"extra_forbidden", "invalid_key"}
# By pydantic's type of a fault: what the setting must be, with the bounds it broke.
WANTED: Mapping[str, str] = {
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(
        ("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "a whole number"
    ),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("string_type", "string_unicode"), "text"),
    "finite_number": "a finite number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "string_too_short": "at least {min_length} long",
    "too_short": "a list of at least {min_length}",
    "tuple_type": "a list",
}

Place = tuple[str | int, ...]


def explain(
    model: type[BaseModel], raw: Mapping[str, Any], faults: Sequence[ErrorDetails]
) -> str:
    """Every fault of `raw` as a `model`, each with its setting as it is written there."""
    at_places: dict[Place, list[ErrorDetails]] = {}
    for fault in faults:
        at_places.setdefault(_written(raw, fault), []).append(fault)
    told = [
        sentence
        for place, found in at_places.items()
        for sentence in _sentences(model, place, _causes(place, found, list(at_places)))
    ]
    if len(told) == 1:
        return told[0]
    listed = "; ".join(f"({i}) {sentence}" for i, sentence in enumerate(told, 1))
    return f"{len(told)} faults: {listed}"


def _written(raw: object, fault: ErrorDetails) -> Place:
    """The place of a fault in what was given: without the names of a union's choices."""
    place: list[str | int] = []
    loc = fault["loc"]
    for i, part in enumerate(loc):
        is_named = i == len(loc) - 1 and fault["type"] in NO_SETTING | {"missing"}
        if isinstance(raw, Mapping) and (is_named or part in raw):
            raw = raw.get(part)
            place.append(str(part))
        elif isinstance(raw, list | tuple) and isinstance(part, int):
            raw = raw[part]
            place.append(part)
    return tuple(place)


def _causes(
    place: Place, faults: Sequence[ErrorDetails], places: Sequence[Place]
) -> list[ErrorDetails]:
    """Without what only follows from a fault further inside.

    A list is too short because its items were refused; a mapping is none of the words that
    could stand in its place.
    """
    if not any(len(p) > len(place) and p[: len(place)] == place for p in places):
        return list(faults)
    return [
        fault
        for fault in faults
        if fault["type"] != "too_short" and len(fault["loc"]) == len(place)
    ]


def _sentences(
    model: type[BaseModel], place: Place, faults: Sequence[ErrorDetails]
) -> Iterator[str]:
    """What is wrong at one place; where there are several ways to write it, all of them."""
    dotted = dotted_name(place)
    wanted: dict[str, ErrorDetails] = {}
    for fault in faults:
        kind = fault["type"]
        if kind in NO_SETTING:
            yield f"{dotted} is no setting; {_known(model, fault)}"
        elif kind == "missing":
            yield f"{dotted} is missing; write `{place[-1]}: …`"
        elif kind == "value_error":
            yield from _own(dotted, fault)
        else:
            wanted.setdefault(_must_be(model, fault, is_only=len(faults) == 1), fault)
    if wanted:
        given = next(iter(wanted.values()))["input"]
        yield f"{dotted} must be {' or '.join(wanted)} ({_shown(given)})"


def dotted_name(place: Place) -> str:
    """`data[0].tokens`: a setting as messages name it; list items count from 0."""
    name = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in place)
    return name.removeprefix(".")


def _own(dotted: str, fault: ErrorDetails) -> Iterator[str]:
    """The sentences of a check of ours, which may name their setting themselves."""
    error = fault["ctx"]["error"]
    for said in error.said if isinstance(error, ContradictionError) else (str(error),):
        if not isinstance(fault["input"], Mapping):
            yield f"{dotted}: {said} ({_shown(fault['input'])})"
        elif not dotted or said.startswith(f"{dotted}."):
            yield said
        else:
            yield f"{dotted}: {said}"


def _must_be(model: type[BaseModel], fault: ErrorDetails, *, is_only: bool) -> str:
    kind, given = fault["type"], fault["input"]
    if kind in MAPPINGS:
        needed = [n for m in _models_at(model, fault["loc"]) for n in _needed(m)]
        settings = f"settings, as {{{', '.join(f'{name}: …' for name in needed)}}}"
        return f"{settings}, or left out" if given is None else settings
    if kind == "tuple_type" and is_only and given is not None:
        return f"a list, as [{_brief(given)}]"
    if kind == "string_type" and isinstance(given, int | float | date):
        return f"text, as '{_brief(given)}'"
    bounds = {name: _brief(value) for name, value in fault.get("ctx", {}).items()}
    if kind == "literal_error":
        return str(fault["ctx"]["expected"])
    return WANTED.get(kind, "something else").format(**bounds)


def _needed(model: type[BaseModel]) -> list[str]:
    """The settings a model can't be without; one of the others if there is none."""
    fields = model.model_fields
    return [name for name, field in fields.items() if field.is_required()] or [*fields][:1]


def _shown(given: object) -> str:
    return "is empty" if given is None else f"is {_brief(given)}"


def _brief(given: object) -> str:
    """A value much as YAML has it, cut to what a line can hold."""
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, float):
        return f"{given:g}"
    text = str(given) if isinstance(given, date) else repr(given)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def _known(model: type[BaseModel], fault: ErrorDetails) -> str:
    *place, name = fault["loc"]
    known = sorted({field for m in _models_at(model, place) for field in m.model_fields})
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"


def _models_at(model: type[BaseModel], place: Sequence[str | int]) -> list[type[BaseModel]]:
    """The models a place could hold; of a union's choices the one that the place names."""
    models: list[type[BaseModel]] = [model]
    for part in place:
        named = [m for m in models if m.__name__ == part]
        fields = [m.model_fields[part].annotation for m in models if part in m.model_fields]
        if fields:
            models = [inner for field in fields for inner in _models_in(field)]
        elif named:
            models = named
    return models


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:  # a type or typing construct
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
