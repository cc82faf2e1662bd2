import hashlib
import math

import numpy as np
import pytest

from store.errors import BadName, NotJson
from store.keys import (
    canonical_json,
    checked_key,
    checked_name,
    checked_relative,
    checked_stage,
    digest_of,
    plain_json,
)


def test_canonical_json_is_spelled_one_way() -> None:
    value = {"b": (1, 2.5), "a": {"z": None, "é": True}}
    assert canonical_json(value) == b'{"a":{"z":null,"\\u00e9":true},"b":[1,2.5]}'


def test_digest_is_sha256_of_the_spelling() -> None:
    assert digest_of([1, "x"]) == hashlib.sha256(b'[1,"x"]').hexdigest()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"loss": math.nan}, r"numbers\.loss is nan"),
        ({"loss": [1.0, -math.inf]}, r"numbers\.loss\[1\] is -inf"),
        ({"rate": np.float32(1)}, r"numbers\.rate is a numpy\.float32, not JSON"),
        ({"set": {1, 2}}, r"numbers\.set is a builtins\.set"),
        ({"by": {3: 1}}, r"numbers\.by has the key 3"),
    ],
)
def test_what_json_cannot_hold_is_named(value: object, message: str) -> None:
    with pytest.raises(NotJson, match=message):
        plain_json(value, "numbers")


def test_a_python_float_made_by_numpy_is_json() -> None:
    assert plain_json(np.float64(0.5), "x") == 0.5


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        "../x",
        "/etc",
        "A",
        "a/b",
        "a\n",
        "locks",
        "damaged",
        "digests",
        "a" * 65,
        "9a",
    ],
)
def test_stage_names_that_could_leave_the_store_are_refused(name: str) -> None:
    with pytest.raises(BadName, match="stage name"):
        checked_stage(name)


@pytest.mark.parametrize("key", ["", "..", "0" * 31, "0" * 33, "A" * 32, "0" * 32 + "\n"])
def test_keys_are_32_hex_digits(key: str) -> None:
    with pytest.raises(BadName):
        checked_key(key)


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "a\\b", "-x", "a\0b"])
def test_array_names_are_one_plain_name(name: str) -> None:
    with pytest.raises(BadName):
        checked_name(name)


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a\0"])
def test_listed_paths_stay_inside(path: str) -> None:
    with pytest.raises(BadName):
        checked_relative(path)


def test_ordinary_names_pass() -> None:
    assert checked_stage("pack_windows2") == "pack_windows2"
    assert checked_name("topk_id") == "topk_id"
    assert checked_relative("hidden/c/0/0/0") == "hidden/c/0/0/0"
