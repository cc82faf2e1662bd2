"""One spelling for every JSON value, its digest, and the names that may become paths."""

import hashlib
import json
import math
import re
from collections.abc import Mapping

from pydantic import JsonValue

from store.errors import BadName, NotJson

KEY_DIGITS = 32
# Folders of the store that are no stage.
RESERVED = {"damaged", "digests", "filling", "incoming", "locks", "pins", "runs", "trash"}

_STAGE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_KEY = re.compile(rf"[0-9a-f]{{{KEY_DIGITS}}}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


def plain_json(value: object, where: str) -> JsonValue:
    """The same value as plain JSON types; tuples become lists. `where` names it in errors.

    Raises `NotJson` for anything else: NaN and infinities, numpy scalars that are no Python
    number, keys that are no strings.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(f"{where} is {value}, which JSON cannot hold; store None instead")
        return float(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {
            _text_key(k, where): plain_json(v, f"{where}.{k}") for k, v in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain_json(item, f"{where}[{i}]") for i, item in enumerate(value)]
    raise NotJson(
        f"{where} is a {type(value).__module__}.{type(value).__qualname__}, not JSON; "
        "convert it to numbers, text, lists and dicts first"
    )


def _text_key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise NotJson(f"{where} has the key {key!r}, and JSON keys are text; use str(key)")
    return key


def canonical_json(value: object) -> bytes:
    """Sorted keys, no spaces, ASCII: equal values give equal bytes on every machine."""
    plain = plain_json(value, "value")
    return json.dumps(
        plain, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()


def digest_of(value: object) -> str:
    """sha256 of the canonical JSON, 64 hex digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def checked_stage(name: str) -> str:
    """`name` if it can be a stage's folder: lower case, digits, underscores."""
    if not _STAGE.fullmatch(name) or name in RESERVED:
        raise BadName(
            f"stage name {name!r}: use lower-case letters, digits and underscores, a "
            f"letter first, and none of {', '.join(sorted(RESERVED))}"
        )
    return name


def checked_key(key: str) -> str:
    """`key` if it is 32 lower-case hex digits."""
    if not _KEY.fullmatch(key):
        raise BadName(f"key {key!r}: a key is {KEY_DIGITS} lower-case hex digits")
    return key


def checked_name(name: str) -> str:
    """`name` if it can be one array's or file's name: no separators, no dot first."""
    if not _NAME.fullmatch(name):
        raise BadName(
            f"name {name!r}: use letters, digits, '_', '-' and '.', and no '.' or '-' first"
        )
    return name


def checked_relative(path: str) -> str:
    """`path` if it is a relative POSIX path that stays below its folder."""
    parts = path.split("/")  # not a Path: this runs for every file of every manifest
    is_folder = all(part in ("", ".") for part in parts)
    if is_folder or path.startswith("/") or ".." in parts or "\0" in path:
        raise BadName(f"path {path!r} leaves the artifact it is listed in")
    return path


def split_name(name: str) -> tuple[str, str]:
    """Stage and key of `"stage/key"`, both checked."""
    stage, _, key = name.partition("/")
    return checked_stage(stage), checked_key(key)
