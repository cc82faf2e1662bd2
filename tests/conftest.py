"""What several rooms' tests share: one Prefect server, one finished heal."""

import atexit
import gc
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # torch, which most tests don't need
    from tests.small_heal import Ground

# Read when Prefect is imported: nothing may call out, nothing may stay in the home folder.
os.environ["DO_NOT_TRACK"] = "1"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="prefect-")
atexit.register(shutil.rmtree, os.environ["PREFECT_HOME"], ignore_errors=True)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> "Ground":
    """A small heal whose store holds every artifact; for reading only."""
    from tests.small_heal import heal, small_ground

    ground = small_ground(tmp_path_factory.mktemp("small"))
    heal(ground.config(), ground.store)
    return ground


@pytest.fixture
def ground(finished: "Ground", tmp_path: Path) -> "Ground":
    """The same model and data with a copy of the finished store, for a test to change."""
    store = shutil.copytree(finished.store, tmp_path / "store")
    return replace(finished, store=store)


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """A throw-away server; 10 to 20 s to start, so ask for it in few tests."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield
    _collect_sockets()


@pytest.fixture
def prefect_sockets() -> Iterator[None]:
    """Collects the sockets Prefect's clients left open, so that no later test is blamed."""
    yield
    _collect_sockets()


def _collect_sockets() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed", ResourceWarning)
        gc.collect()
