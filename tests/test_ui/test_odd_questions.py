"""Whatever a URL asks for, the answer is a clear page or a sentence, never a 500."""

import re
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from tests.inspected import HOSTILE
from ui.inspector.app import ROUTERS, create_app

if TYPE_CHECKING:
    from tests.inspected import Inspected

LONG = "a" * 5000
ODD = ("-1", "9" * 400, "1e999", "NaN", "%00", "%ff%fe", "é☃", "..%2f..%2fetc%2fpasswd",
       HOSTILE, LONG)  # fmt: skip
TABLES = {"windows": "chain", "training": "steps", "arrays": "rows", "artifacts": "recipe",
          "compare": "drafts", "heals": "steps"}  # fmt: skip
PLOTS = {"windows": "kept", "training": "kl", "arrays": "rows", "compare": "steps",
         "heals": "steps"}  # fmt: skip


@pytest.fixture(scope="module")
def asking(seen: "Inspected") -> TestClient:
    """A client that takes a 500 for an answer instead of raising what led to it."""
    return TestClient(create_app(seen.root), raise_server_exceptions=False)


def routes(seen: "Inspected") -> dict[str, tuple[str, ...]]:
    """Every route there is, filled with what the store holds, and the names it asks for."""
    measure = seen.made_by(seen.done, "measure_draft")
    train = seen.made_by(seen.done, "train_draft")
    keys = {"windows": ("measure_draft", measure),
            "arrays": ("trunk_pass", seen.key("trunk_pass"))}  # fmt: skip
    found = {}
    rooms = [import_module(f"ui.inspector.{name}").router.routes for name in ROUTERS]
    for route in chain.from_iterable(rooms):
        assert isinstance(route, APIRoute)
        room = route.path.removeprefix("/api").split("/")[1]
        stage, key = keys.get(room, ("train_draft", train))
        filled = route.path.format(
            stage=stage, key=key, name=seen.done, form="json",
            table=TABLES.get(room, ""), plot=PLOTS.get(room, ""),
        )  # fmt: skip
        names = tuple(str(one.alias) for one in route.dependant.query_params)
        found[filled + (f"?a={seen.done}" if room == "compare" else "")] = names
    return found


def test_every_route_answers_what_it_is_made_for(
    asking: TestClient, seen: "Inspected"
) -> None:
    found = routes(seen)
    statuses = {path: asking.get(path).status_code for path in found}
    assert {path: status for path, status in statuses.items() if status != 200} == {}
    assert len(found) > 20


def test_a_head_says_of_every_route_what_a_get_does(
    asking: TestClient, seen: "Inspected"
) -> None:
    for path in routes(seen):
        said, got = asking.head(path), asking.get(path)
        assert said.status_code == 200, path
        assert said.headers["content-type"] == got.headers["content-type"]
    assert asking.head("/heal/nothing").status_code == 404
    assert asking.put("/").status_code == 405


@pytest.mark.parametrize("value", ODD)
def test_no_odd_value_of_any_parameter_is_an_error_of_ours(
    asking: TestClient, seen: "Inspected", value: str
) -> None:
    wrong: dict[str, int | str] = {}
    for path, names in routes(seen).items():
        sign = "&" if "?" in path else "?"
        for name in (*names, "unknown"):
            for query in (f"{name}={value}", f"{name}=1&{name}={value}&{name}="):
                answer = asking.get(f"{path}{sign}{query}")
                if answer.status_code not in (200, 400, 404):
                    wrong[f"{path}{sign}{query}"[:200]] = answer.status_code
                is_page = answer.headers["content-type"].startswith("text/html")
                if is_page and re.search("<script>alert|root:x:", answer.text):
                    wrong[f"{path}{sign}{query}"[:200]] = "not escaped"
    assert wrong == {}


@pytest.mark.parametrize("value", ODD)
def test_no_odd_part_of_any_path_is_an_error_of_ours(
    asking: TestClient, seen: "Inspected", value: str
) -> None:
    wrong: dict[str, int | str] = {}
    for path in routes(seen):
        bare, _, query = path.partition("?")
        parts = bare.split("/")
        for place in range(2, len(parts)):
            dot = parts[place].rfind(".")
            end = parts[place][dot:] if dot > 0 else ""
            odd = "/".join([*parts[:place], value + end, *parts[place + 1 :]])
            answer = asking.get(f"{odd}?{query}")
            if answer.status_code not in (200, 400, 404, 405):
                wrong[odd[:200]] = answer.status_code
            if "root:x:" in answer.text:
                wrong[odd[:200]] = "read a file"
            if bare.startswith("/api/") and answer.status_code in (400, 404):
                assert answer.json()["error"], odd[:200]
    assert wrong == {}
