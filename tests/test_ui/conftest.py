"""One store in every state for the inspector's tests that only read it."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from ui.inspector.app import create_app

if TYPE_CHECKING:
    from tests.inspected import Inspected
    from tests.small_heal import Ground


@pytest.fixture(scope="package")
def seen(
    finished: "Ground", tmp_path_factory: pytest.TempPathFactory
) -> Iterator["Inspected"]:
    """Whoever puts a file into it takes it out again."""
    from tests.inspected import inspected

    folder = tmp_path_factory.mktemp("seen")
    ground = replace(finished, store=shutil.copytree(finished.store, folder / "store"))
    with inspected(ground, folder) as made:
        yield made


@pytest.fixture(scope="package")
def client(seen: "Inspected") -> TestClient:
    return TestClient(create_app(seen.root))
