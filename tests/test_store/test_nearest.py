"""What a call differs in, and its cost, on manifests written out by hand."""

from typing import Any

import pytest

from store.manifest import Manifest, Recipe
from store.nearest import cost, nearest

BASE: dict[str, Any] = {
    "stage": "train_draft",
    "version": 1,
    "settings": {"lr": 0.1, "steps": 10, "deep": {"list": [1, 2]}},
    "inputs": {"draft": "d1", "sets": ["a", "b"], "files": {"in_order": [["keep", "f1"]]}},
}


def recipe(**changes: Any) -> Recipe:
    return Recipe.model_validate(BASE | changes)


def past(started: str = "2030-01-01", **changes: Any) -> Manifest:
    rest = {
        "key": "ab" * 16,
        "content": "c",
        "files": {
            "x": {"size": 300, "mtime_ns": 0, "sha256": ""},
            "y": {"size": 100, "mtime_ns": 0, "sha256": ""},
        },
        "numbers": {},
        "seconds": 8.0,
        "resumed": False,
        "started": started,
        "machine": "",
    }
    empty: dict[str, Any] = {
        "arrays": {},
        "notes": {},
        "versions": {},
        "parts": (),
        "part_digests": (),
    }
    return Manifest.model_validate(BASE | rest | empty | changes)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"settings": BASE["settings"] | {"lr": 0.2}}, "lr is 0.2, was 0.1"),
        (
            {"settings": BASE["settings"] | {"deep": {"list": [1, 3]}}},
            "deep.list is [1,3], was [1,2]",
        ),
        (
            {"settings": BASE["settings"] | {"deep": {"list": list(range(50))}}},
            "deep.list is another",
        ),
        ({"settings": {"lr": 0.1, "deep": {"list": [1, 2]}}}, "steps is unset, was 10"),
        ({"inputs": BASE["inputs"] | {"draft": "d2"}}, "input draft is another"),
        ({"inputs": BASE["inputs"] | {"sets": ["a", "z"]}}, "input sets[1] is another"),
        (
            {"inputs": BASE["inputs"] | {"files": {"in_order": [["keep", "f2"]]}}},
            "input files.keep is another",
        ),
        ({"version": 2}, "the stage is version 2, was 1"),
    ],
)
def test_each_difference_has_its_sentence(changes: dict[str, Any], text: str) -> None:
    found = nearest(recipe(**changes), [past()])
    assert found is not None
    assert found.text() == f"{text} (in train_draft/abababab)"


def test_the_fewest_differences_win_then_the_latest() -> None:
    far = past("2033-01-01", settings={"lr": 0.3, "steps": 11, "deep": {"list": []}})
    old, new = past("2030-01-01"), past("2031-01-01")
    found = nearest(recipe(settings=BASE["settings"] | {"lr": 0.2}), [old, far, new])
    assert found is not None
    assert found.manifest is new


def test_a_small_one_that_is_as_near_is_not_scaled_up() -> None:
    whole = past("2030-01-01", numbers={"tokens": 4096})
    probe = past("2031-01-01", numbers={"tokens": 256})
    far = past("2032-01-01", numbers={"tokens": 9999}, inputs={})
    wanted = recipe(settings=BASE["settings"] | {"lr": 0.2})
    found = nearest(wanted, [whole, probe, far])
    assert found is not None
    assert found.telling is whole
    assert nearest(wanted, []) is None


def test_many_differences_are_counted() -> None:
    changes = {"lr": 0.5, "steps": 5, "deep": {"list": []}, "new": True}
    found = nearest(recipe(settings=changes, version=3), [past()])
    assert found is not None
    assert found.text().startswith("the stage is version 3, was 1; lr is 0.5, was 0.1; ")
    assert "; 2 more (in" in found.text()


@pytest.mark.parametrize(
    ("expected", "numbers", "size", "seconds"),
    [
        ({"tokens": 50}, {"tokens": 100}, 200, 4.0),  # half the tokens: half of both
        ({"steps": 20}, {"steps": 10}, 400, 16.0),  # twice the steps: the same draft
        ({}, {}, 400, 8.0),
        ({}, {"tokens": 0}, 400, 8.0),
        ({"tokens": 5}, {"windows": 5}, 400, 8.0),  # nothing both tell but the steps
    ],
)
def test_the_cost_goes_with_the_work(
    expected: dict[str, int], numbers: dict[str, int], size: int, seconds: float
) -> None:
    found = cost(recipe(), expected, past(numbers=numbers))
    assert (found.size_bytes, found.seconds) == (size, seconds)


def test_steps_asked_for_count_where_none_were_told() -> None:
    found = cost(recipe(settings={"recipe": {"steps": 30}}), {}, past())
    assert (found.size_bytes, found.seconds) == (400, 24.0)


def test_nobody_knows_how_long_a_resumed_stage_took() -> None:
    assert cost(recipe(), {}, past(resumed=True)).seconds is None


def test_only_what_goes_with_the_work_is_scaled() -> None:
    probe = past(numbers={"tokens": 10}, notes={"at_pace_s": 0.5}, seconds=8.0)
    first = cost(recipe(), {"tokens": 1000}, probe)
    later = cost(recipe(), {"tokens": 1000}, probe, begins=False)
    assert (first.seconds, later.seconds) == (7.5 + 50.0, 50.0)  # not 800
    assert first.size_bytes == later.size_bytes == 40_000
    odd = past(numbers={"tokens": 10}, notes={"at_pace_s": 9.0}, seconds=8.0)
    assert cost(recipe(), {"tokens": 20}, odd).seconds == 16.0  # never more than it took
