"""One Prefect server for all tests here that run real flows."""

import atexit
import gc
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator

import pytest

# Read when Prefect is imported: nothing may call out, nothing may stay in the home folder.
os.environ["DO_NOT_TRACK"] = "1"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="prefect-")
atexit.register(shutil.rmtree, os.environ["PREFECT_HOME"], ignore_errors=True)


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
