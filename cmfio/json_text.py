"""JSON as the peer reads and spells it: strict in, byte for byte out."""

import json
import math
from decimal import Decimal
from typing import NoReturn, TypeAlias, cast

from cmfio.errors import ParseError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

MAX_DEPTH = 128  # the peer's own limit


class JsonFloat(float):
    """A float that remembers its spelling: an untouched header stays as it was."""

    text: str

    def __new__(cls, text: str) -> "JsonFloat":
        """The number `text` spells; ValueError when it is too large to be one."""
        number = super().__new__(cls, text)
        if not math.isfinite(number):
            raise ValueError(f"number {text} is out of range")
        number.text = text
        return number

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]  # float's is (float,)
        """Copies and pickles are made from the text."""
        return (self.text,)


def parse_json(data: bytes, what: str) -> Json:
    """The value `data` spells, floats as `JsonFloat`.

    ParseError on duplicate keys, NaN, bad UTF-8, lone surrogates, nesting beyond 128.
    """
    try:
        tree: Json = json.loads(
            data.decode("utf-8"),
            parse_float=JsonFloat,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique_keys,
        )
        spell_json(tree).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise ParseError(f"{what} isn't valid JSON: {error}") from error
    return tree


def parse_object(data: bytes, what: str) -> dict[str, Json]:
    """Like `parse_json`, for what must be an object."""
    tree = parse_json(data, what)
    if not isinstance(tree, dict):
        raise ParseError(f"{what} must be a JSON object, it is a {type(tree).__name__}")
    return tree


def spell_json(value: Json, *, depth: int = 0) -> str:
    """Compact JSON with the peer's number spelling, keys in their own order."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        items = (
            f"{_spell_str(key)}:{spell_json(item, depth=depth + 1)}"
            for key, item in value.items()
        )
        return "{" + ",".join(items) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(spell_json(item, depth=depth + 1) for item in value) + "]"
    if isinstance(value, float):
        return value.text if isinstance(value, JsonFloat) else spell_float(value)
    return _spell_str(value) if isinstance(value, str) else json.dumps(value)


def spell_sorted(value: Json) -> str:
    """As `spell_json`, with keys sorted by their bytes. For digests, never for files."""
    return spell_json(_sorted_keys(value))


def spell_float(x: float) -> str:
    """Shortest round-trip digits, as the peer spells an f64.

    Fixed notation for 1e-5 <= |x| < 1e16, else `9.9e-6`, `1e16`; non-finite is null.
    """
    if not math.isfinite(x):
        return "null"
    if x == 0 or 1e-5 <= abs(x) < 1e16:
        text = format(Decimal(repr(x)), "f")
        return text if "." in text else text + ".0"
    mantissa, _, exponent = f"{Decimal(repr(x)).normalize():e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _sorted_keys(value: Json) -> Json:
    if isinstance(value, dict):
        # UTF-8 keeps the order of code points, so sorting str sorts the bytes.
        return {key: _sorted_keys(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sorted_keys(item) for item in value]
    return value


def _spell_str(text: str) -> str:
    # Python and the peer escape the same control characters, and leave DEL alone.
    return json.dumps(text, ensure_ascii=False)


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, Json]:
    tree = cast("dict[str, Json]", dict(pairs))
    if len(tree) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} stands twice in one object")
    return tree


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} isn't JSON")
