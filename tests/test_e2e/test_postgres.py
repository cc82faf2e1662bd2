"""The server's history in a real Postgres, where one is installed."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_e2e.site import Lab, free_port, make_lab, processes_of, wait_until

pytestmark = pytest.mark.e2e
USER = "postgres" if os.geteuid() == 0 else None  # Postgres refuses to run as root


def programs() -> Path:
    """Where Postgres's programs lie; skips where it isn't installed."""
    for name in ("postgres", "/usr/lib/postgresql/*/bin/postgres"):
        found = shutil.which(name) or next(map(str, Path("/").glob(name.lstrip("/"))), None)
        if found is not None:
            return Path(found).resolve().parent
    pytest.skip("Postgres is not installed")


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """A Postgres of its own on loopback: its URL for `heal up --database`."""
    bin_ = programs()
    root = Path(tempfile.mkdtemp(prefix="heal-pg-"))  # not below a folder of pytest's own
    if USER is not None:
        shutil.chown(root, USER)
    data, port = root / "data", free_port()

    def run(*line: str) -> None:
        subprocess.run([str(bin_ / line[0]), *line[1:]], user=USER, cwd=root, check=True)

    run("initdb", "-D", str(data), "-U", "heal", "--auth=trust", "--no-sync")
    options = f"-h 127.0.0.1 -p {port} -k {root} -F"
    run("pg_ctl", "-D", str(data), "-o", options, "-l", str(root / "log"), "-w", "start")
    try:
        run("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "heal", "heal")
        yield f"postgresql+asyncpg://heal@127.0.0.1:{port}/heal"
    finally:
        run("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def lab(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = make_lab(tmp_path_factory.mktemp("home"))
    try:
        made.up("--database", database)
        yield made
    finally:
        made.down()
    assert processes_of(made.site.home) == []


def test_a_heal_and_a_reheal_by_event_on_postgres(lab: Lab) -> None:
    assert lab.ended(lab.scheduled()) == "Completed", lab.log("worker")
    assert lab.heal("notify", "models/a.cmf").returncode == 0
    wait_until(lambda: lab.runs("reheal"), "the run of the event")
    assert lab.ended(lab.runs("reheal")[0]["id"]) == "Completed", lab.log("worker")
    assert (lab.models / "a.healed.cmf").exists()
    assert not (lab.site.home / ".prefect" / "prefect.db").exists()
